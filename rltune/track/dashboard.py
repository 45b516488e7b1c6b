"""The W&B workspace and report of a sweep, built by wandb-workspaces.

Building needs no server and no account; only saving does. A run is a trial, the runs of a sweep are
its group, and `rltune.condition` of their config says which condition a run belongs to.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rltune.errors import InputError, Problem

GROUP_BY = "rltune.condition"

PANELS: dict[str, dict[str, tuple[str, ...]]] = {
    "Outcome": {
        "Held-out success": ("heldout/success_rate",),
        "Training success": ("rollout/success_rate",),
        "Reward std inside groups": ("rollout/in_group_reward_std",),
    },
    "Policy": {
        "Entropy": ("actor/entropy",),
        "KL to the start": ("actor/kl_loss",),
        "KL of an update": ("actor/ppo_kl",),
        "Gradient norm": ("actor/grad_norm",),
    },
    "Rollouts": {
        "Groups kept by the filter": ("rollout/filter_kept_ratio",),
        "Response length": ("response_length/mean", "response_length/max"),
        "Responses cut at a limit": ("response_length/clip_ratio", "rollout/context_clip_ratio"),
        "Invalid actions": ("rollout/invalid_action_rate",),
    },
}
"""Section -> title of a panel and its metrics."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dashboard:
    """What a dashboard is about."""

    sweep: str  # name of the sweep: the group of its runs
    title: str  # of the sweep
    question: str  # that it asks
    verdict: str  # what the audit came to, in one line
    project: str  # W&B project of the runs
    entity: str = ""  # user or team; empty for the key's own


def build(about: Dashboard) -> tuple[Any, Any]:
    """Return the workspace and the report, not saved.

    Raises:
        InputError: wandb-workspaces is not installed.

    """
    wr, ws = _library()
    panels = [
        (section, [_line(wr, title, metrics) for title, metrics in wanted.items()])
        for section, wanted in PANELS.items()
    ]
    workspace = ws.Workspace(
        name=about.title or about.sweep,
        entity=about.entity,
        project=about.project,
        sections=[
            ws.Section(name=name, panels=made, is_open=True, pinned=False) for name, made in panels
        ],
        settings=ws.WorkspaceSettings(x_axis="step"),
        runset_settings=ws.RunsetSettings(
            filters=f"Metric('Group') == {about.sweep!r}", groupby=[ws.Config(GROUP_BY)]
        ),
    )
    return workspace, _report(wr, about, panels)


def as_json(built: Any) -> str:
    """Return a workspace or a report as JSON, as it would be sent."""
    return str(built._to_model().model_dump_json(by_alias=True, indent=2))


def _line(wr: Any, title: str, metrics: Sequence[str]) -> Any:
    """Return a panel over steps: the mean of a condition's runs, and their range."""
    return wr.LinePlot(
        title=title,
        x="step",
        y=list(metrics),
        groupby=f"config.{GROUP_BY}",
        groupby_aggfunc="mean",
        groupby_rangefunc="minmax",
    )


def _report(wr: Any, about: Dashboard, panels: Sequence[tuple[str, list[Any]]]) -> Any:
    runs = wr.Runset(
        entity=about.entity,
        project=about.project,
        name=about.sweep,
        filters=f"Metric('Group') == {about.sweep!r}",
        groupby=[f"config.{GROUP_BY}"],
    )
    blocks: list[Any] = [wr.P(text=about.question), wr.P(text=f"Audit: {about.verdict}")]
    for name, made in panels:
        blocks += [wr.H2(text=name), wr.PanelGrid(runsets=[runs], panels=made)]
    return wr.Report(
        entity=about.entity,
        project=about.project,
        title=about.title or about.sweep,
        description=about.question,
        blocks=blocks,
    )


def _library() -> tuple[Any, Any]:
    """Import wandb-workspaces, which warns of its own use of pydantic."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            import wandb_workspaces.reports.v2 as wr
            import wandb_workspaces.workspaces as ws
        except ImportError as error:
            what = "needs wandb-workspaces, which is not installed."
            action = "pip install 'rltune[dashboard]'"
            raise InputError(Problem("rltune dashboard", what, action=action)) from error
    return wr, ws
