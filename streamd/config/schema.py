"""JSON Schema of the configuration files, for editors and for whoever writes them by program."""

from __future__ import annotations

from typing import Any

from streamd.config.types import CameraConfig, MainFile, Section

DIALECT = "https://json-schema.org/draft/2020-12/schema"
_SUBSTITUTION = {"type": "string", "pattern": r"^\$\{", "description": "${VAR}, ${VAR:-default} or ${file:NAME}"}
_ABOUT = {"description", "default"}


def main_schema() -> dict[str, Any]:
    """Of streamd.yaml."""
    return _schema(MainFile)


def camera_schema() -> dict[str, Any]:
    """Of a file in cameras/."""
    return _schema(CameraConfig)


def _schema(section: type[Section]) -> dict[str, Any]:
    schema = section.model_json_schema()
    groups = schema.setdefault("$defs", {})
    for group in (schema, *groups.values()):
        group["properties"] = {name: _also_substituted(value) for name, value in group["properties"].items()}
    groups["Substitution"] = _SUBSTITUTION
    return {"$schema": DIALECT, **schema}


def _also_substituted(value: dict[str, Any]) -> dict[str, Any]:
    """The loader fills in `${…}` before it looks at types, so an editor must take it where a number or a choice is due."""
    about = {key: item for key, item in value.items() if key in _ABOUT}
    rule = {key: item for key, item in value.items() if key not in _ABOUT}
    rules = rule.get("anyOf", [rule])
    if any("$ref" in one or one.get("type") == "object" or _is_any_text(one) for one in rules):
        return {**about, **rule}
    return {**about, "anyOf": [*rules, {"$ref": "#/$defs/Substitution"}]}


def _is_any_text(rule: dict[str, Any]) -> bool:
    return rule.get("type") == "string" and not rule.keys() & {"pattern", "enum", "const"}
