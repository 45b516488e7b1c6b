"""The table of commands. A command's module is imported when the command is chosen."""

import inspect
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from rltune.cli.options import TakesValues

_PLAIN: dict[str, Any] = {
    "add_completion": False,
    "rich_markup_mode": None,
    "context_settings": {"help_option_names": ["-h", "--help"]},
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One command of the table."""

    name: str  # as it is typed
    place: str  # `module:function` in `rltune.cli`
    help: str  # its line in the list of commands; what `--help` says is the function's docstring
    takes_values: bool = False  # whether its arguments may be negative numbers


COMMANDS = (
    Entry("sweep", "sweep:sweep", "Run a sweep; repeat the command to resume after a stop."),
    Entry("next", "next:next_trial", "Run one trial of a sweep, the one that is due."),
    Entry("study", "study:study", "Run a queue of sweeps that build on each other."),
    Entry("check", "check:check", "Prove before a run that only one knob changes."),
    Entry("plan", "plan:plan", "Show every trial of a sweep with its cost."),
    Entry("status", "inspect:status", "Show the state of every trial."),
    Entry("dashboard", "dashboard:dashboard", "Build the sweep's W&B workspace and report."),
    Entry("sync", "sync:sync", "Upload the offline W&B runs of a sweep."),
    Entry("audit", "inspect:audit", "Prove from the records that what ran is comparable."),
    Entry("export", "export:export", "Write the tables and figures of a sweep."),
    Entry("report", "report:report", "Write a sweep's HTML page, or a finding to publish."),
    Entry(
        "bundle", "publish.bundle:bundle", "Write the evidence of a sweep or a study as one zip."
    ),
    Entry("verify", "publish.verify:verify", "Prove a finding or a bundle, or rerun its trials."),
    Entry(
        "compare",
        "compare:compare",
        "Compare two conditions or trials at their last gates.",
        takes_values=True,
    ),
    Entry(
        "test",
        "final_test:final_test",
        "Evaluate a trial's checkpoint on the frozen test tasks.",
        takes_values=True,
    ),
    Entry("rerun", "rerun:rerun", "Run a recorded trial again and compare.", takes_values=True),
    Entry(
        "continue",
        "rerun:continue_",
        "Start a child trial from a trial's checkpoint.",
        takes_values=True,
    ),
    Entry("model", "models:model", "Write a trial's model as a folder that others load."),
    Entry("chat", "playing.chat:chat", "Watch a trial's policy play, before and after training."),
    Entry("play", "playing.play:play", "Play an environment, or watch its solver or a policy."),
    Entry("warmstart", "warmstart:warmstart", "Train a policy on what is right to say."),
    Entry("convert", "models:convert", "Convert a GGUF file to a model folder."),
    Entry(
        "serve-retriever",
        "serve:serve_retriever",
        "Serve passages over the Search-R1 protocol.",
    ),
    Entry(
        "serve-tinker",
        "serve:serve_tinker",
        "Serve training over the Tinker protocol on this machine.",
    ),
    Entry("clean", "clean:clean", "Delete files that no result needs."),
    Entry("doctor", "doctor:doctor", "Check whether this machine is ready."),
    Entry("init", "init:init", "Copy the starter sweeps, or begin from a file."),
)
LINEAGE = (
    Entry("show", "lineage:show_table", "Show one row for each attempt, with how it ended."),
    Entry("best", "lineage:show_best", "Show the best kept or baseline row and its ties."),
    Entry("chain", "lineage:show_chain", "Show the chain of kept rows from the root to a row."),
    Entry(
        "generations",
        "generations:show_generations",
        "Chart a model over its generations.",
    ),
    Entry("recent", "lineage:show_recent", "Show the last rows, newest first."),
    Entry("children", "lineage:show_children", "Show the rows that start from a row."),
    Entry(
        "calibration",
        "lineage:show_calibration",
        "Show each prediction next to the measured value.",
    ),
    Entry("render", "lineage_files:render", "Write LEADERBOARD.md and KNOWLEDGE.md."),
    Entry("export", "lineage_files:export_table", "Write the table in another tool's format."),
    Entry("repair", "lineage_files:repair", "Move damaged lines to TABLE.torn."),
    Entry("import", "lineage_files:import_table", "Append another tool's rows to a lineage table."),
)


class _Lazy(TyperCommand):
    """Stands for a command in the list of commands; `load` imports it."""

    def __init__(self, entry: Entry) -> None:
        super().__init__(entry.name, help=entry.help, rich_markup_mode=None)
        self._entry = entry

    def load(self) -> Any:
        """Return the command itself. The examples in its docstring end its help."""
        module, _, name = self._entry.place.partition(":")
        function = getattr(import_module(f"rltune.cli.{module}"), name)
        text, _, examples = inspect.cleandoc(function.__doc__ or "").partition("Example:\n")
        single = typer.Typer(**_PLAIN)
        single.command(
            self._entry.name,
            cls=TakesValues if self._entry.takes_values else TyperCommand,
            help=text,
            epilog=f"\b\nExample:\n{examples}",
        )(function)
        return typer.main.get_command(single)


class _Group(TyperGroup):
    """A group that imports a command when it is chosen."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name, the command and the remaining arguments."""
        name, chosen, rest = super().resolve_command(ctx, args)
        return name, chosen.load() if isinstance(chosen, _Lazy) else chosen, rest


def _group(app: typer.Typer, entries: Iterable[Entry]) -> TyperGroup:
    group = typer.main.get_group(app)
    for entry in entries:
        group.add_command(_Lazy(entry))
    return group


def _version(value: bool) -> None:
    if value:
        try:
            typer.echo(f"rltune {version('rltune')}")
        except PackageNotFoundError:
            typer.echo("rltune (not installed; run from source)")
        raise typer.Exit


def _root(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Take the options before the command."""


def command() -> Any:
    """Return the whole command line as one callable command."""
    root = typer.Typer(
        name="rltune",
        cls=_Group,
        callback=_root,
        help="What does this one knob do to an LLM agent trained with RL? Sweeps in which exactly "
        "one knob moves, and the proof of it.",
        no_args_is_help=True,
        **_PLAIN,
    )
    lineage = typer.Typer(
        name="lineage",
        cls=_Group,
        callback=lambda: None,
        help="Query the table of everything that was tried.",
        no_args_is_help=True,
        **_PLAIN,
    )
    group = _group(root, COMMANDS)
    group.add_command(_group(lineage, LINEAGE))
    return group
