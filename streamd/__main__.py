"""`python -m streamd` is the `streamd` command."""

from streamd.cli import main

if __name__ == "__main__":
    main()
