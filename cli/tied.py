"""Commands that end with this program, however it ends."""

from __future__ import annotations

from collections.abc import Sequence

# Runs the command behind it, and ends it when standard input closes: however the program dies, the system
# closes its end of the pipe. A parent-death signal would not do: it is bound to the starting thread.
# What the shell itself has to say about kills goes nowhere.
_TIED = (
    'exec 3<&0 4>&2 2>/dev/null; "$@" 3<&- 2>&4 4>&- & c=$!; exec 4>&-; '
    "{ read -r _ <&3; kill $c; } & wait $c; s=$?; kill $!; exit $s"
)


def tied(command: Sequence[str]) -> list[str]:
    """The command to start in its place, with a pipe as standard input: closing the pipe asks it to end in
    good order (SIGTERM). Its exit status is the command's own, or 128 plus the signal that killed it."""
    return ["/bin/sh", "-c", _TIED, "sh", *command]
