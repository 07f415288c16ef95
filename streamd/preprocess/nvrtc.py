"""Compiling and launching CUDA C at run time, by NVIDIA's own bindings, which come with torch. No compiler is needed on the machine."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from typing import Any

import torch

from streamd.errors import DeviceError


def _checked(result: tuple[Any, ...]) -> Any:
    """The value of a call of the bindings; DeviceError when it failed."""
    status, *values = result
    if status:
        raise DeviceError(f"CUDA reports {status.name}")
    return values[0] if values else None


def compile_source(source: str, *, architecture: str, defines: Sequence[str]) -> bytes:
    """A cubin of `source` for `architecture` (`sm_90`, say). Works without a GPU. Raises DeviceError with the compiler's words."""
    from cuda.bindings import nvrtc  # noqa: PLC0415 - only where there is a GPU

    program = _checked(nvrtc.nvrtcCreateProgram(source.encode(), b"streamd.cu", 0, [], []))
    options = [f"--gpu-architecture={architecture}".encode(), b"--std=c++17", *(f"-D{define}".encode() for define in defines)]
    (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if status:
        text = bytearray(_checked(nvrtc.nvrtcGetProgramLogSize(program)))
        _checked(nvrtc.nvrtcGetProgramLog(program, text))
        raise DeviceError(f"a kernel does not compile for {architecture}: {text.decode(errors='replace').strip(chr(0))}")
    cubin = bytearray(_checked(nvrtc.nvrtcGetCUBINSize(program)))
    _checked(nvrtc.nvrtcGetCUBIN(program, cubin))
    return bytes(cubin)


class Kernel:
    """A function of a cubin on one device."""

    def __init__(self, cubin: bytes, name: str, *, device: torch.device, shared_bytes: int) -> None:
        from cuda.bindings import driver  # noqa: PLC0415

        self._driver = driver
        with torch.cuda.device(device):
            torch.cuda.current_stream().synchronize()  # makes torch's context the current one
            self._module = _checked(driver.cuModuleLoadData(cubin))
        self._function = _checked(driver.cuModuleGetFunction(self._module, name.encode()))
        limit = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _checked(driver.cuFuncSetAttribute(self._function, limit, shared_bytes))

    def launch(self, grid: tuple[int, int], threads: int, *, shared_bytes: int, stream: int, arguments: int) -> None:
        """Queue the kernel on `stream`. `arguments` is the address of an array of addresses, one an argument."""
        driver = self._driver
        (status,) = driver.cuLaunchKernel(self._function, grid[0], grid[1], 1, threads, 1, 1, shared_bytes, stream, arguments, 0)
        if status:
            raise DeviceError(f"CUDA reports {status.name}")


def argument_array(arguments: Sequence[ctypes._SimpleCData[Any] | ctypes.Structure]) -> ctypes.Array[ctypes.c_void_p]:
    """What `Kernel.launch` wants. The arguments are referenced, not copied: keep them, and change them between launches."""
    return (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))


@functools.cache
def shared_memory_limit(device_index: int) -> int:
    """Bytes of shared memory that one block can have on this device."""
    from cuda.bindings import driver  # noqa: PLC0415

    _checked(driver.cuInit(0))
    attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    return int(_checked(driver.cuDeviceGetAttribute(attribute, _checked(driver.cuDeviceGet(device_index)))))
