"""The `riverrun` command."""

from __future__ import annotations

import signal
import sys
from importlib import import_module
from importlib.metadata import version

import click

from core.errors import ConfigError, RiverrunError, UnknownTopic

_COMMANDS = {
    "backtest": "cli.commands.backtest",
    "demo": "cli.commands.demo",
    "doctor": "cli.commands.doctor",
    "init": "cli.commands.init",
    "models": "cli.commands.models",
    "produce": "cli.commands.produce",
    "serve": "cli.commands.serve",
    "train": "cli.commands.train",
    "up": "cli.commands.up",
}


class _Lazy(click.Group):
    """Imports a command when it is used, so that `--help` and errors come at once."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  # click's signature
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        module = _COMMANDS.get(cmd_name)
        command = None if module is None else import_module(module).command
        return command if isinstance(command, click.Command) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(_HELP.items()))


_HELP = {
    "backtest": "Report how a configuration would have done on a file.",
    "demo": "Run the whole loop on bundled real data.",
    "doctor": "Check the configuration, the services and their settings.",
    "init": "Guess a riverrun.toml from a sample file.",
    "models": "List, show, promote or roll back models.",
    "produce": "Send a file as events and labels.",
    "serve": "Answer predictions over HTTP.",
    "train": "Learn from the log.",
    "up": "Log, store, trainer and predictor on this machine.",
}


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(version("riverrun"), prog_name="riverrun")
def riverrun() -> None:
    """Streaming online learning: events and late labels in, versioned models out."""


def main(arguments: list[str] | None = None) -> None:
    """Runs the command and exits: 0 done, 1 failed, 2 usage or configuration, 130 interrupted."""
    signal.signal(signal.SIGTERM, _terminated)
    try:
        riverrun.main(args=arguments, prog_name="riverrun", standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except KeyboardInterrupt:
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except ConfigError as error:
        for problem in error.problems:
            click.echo(f"error: {problem}", err=True)
        sys.exit(2)
    except RiverrunError as error:
        click.echo(f"error: {error}", err=True)
        if isinstance(error, UnknownTopic):
            click.echo("Create it, or let `riverrun produce` or `riverrun up` make it.", err=True)
        sys.exit(1)
    except BrokenPipeError:
        # Whoever read our output has gone; nothing is left to say to anybody.
        sys.stderr.close()
        sys.exit(1)


def _terminated(number: int, frame: object) -> None:  # noqa: ARG001  # a handler's signature
    """Ends commands that have no way of their own through their `with` blocks: nothing is left behind."""
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
