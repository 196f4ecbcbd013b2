"""A command whose memory-mapped file is cut meanwhile ends with one line, not with a bus error (SIGBUS).

Python cannot handle this signal: its handler would return to the instruction that failed. So the handler is compiled.
It writes a line and ends the process.
"""

from __future__ import annotations

import ctypes
import faulthandler
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["end_on_bus_error"]

_LINE = b"Error: a file was cut, or could not be read, while the command read it; repeat the command\n"
_HANDLER = """
declare i64 @write(i32, i64, i64)
declare void @_exit(i32)
define void @end(i32 %signal) {{
  %written = call i64 @write(i32 2, i64 {address}, i64 {size})
  call void @_exit(i32 2)
  ret void
}}
"""


@contextmanager
def end_on_bus_error() -> Iterator[None]:
    """End the process with one line and exit code 2 if a bus error happens in this context.

    It must be entered in the main thread. It does nothing on Windows, or if something else handles the signal.
    """
    number = getattr(signal, "SIGBUS", None)
    if number is None or faulthandler.is_enabled() or signal.getsignal(number) is not signal.SIG_DFL:
        yield
        return
    from llvmlite import binding  # not needed to show the help

    line = ctypes.create_string_buffer((b"\n" if sys.stderr.isatty() else b"") + _LINE)  # below a progress bar
    code = _HANDLER.format(address=ctypes.addressof(line), size=len(line.value))
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    machine = binding.Target.from_default_triple().create_target_machine()
    with binding.create_mcjit_compiler(binding.parse_assembly(code), machine) as engine:
        set_handler = ctypes.CDLL(None).signal
        set_handler.argtypes, set_handler.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
        set_handler(number, engine.get_function_address("end"))
        try:
            yield
        finally:
            signal.signal(number, signal.SIG_DFL)
