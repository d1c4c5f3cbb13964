"""Ours beside the peers on one machine in one run: `make bench`, with any python3.

Every contender runs in its own process, one after the other in rounds, so that noise hits all
alike; what counts is the median of the rounds, of a ratio the median of the rounds' ratios. A
whole run writes `bench/results/DATE-COMMIT.json` and `.md` in place of the last run on this kind of
machine, and a line of `history.jsonl`; on a machine that was quiet at its start also the table in
docs/performance.md. bench/README.md describes the method.

    run.py [--only NAME ...] [--runs N] [--quick]

A contender that fails ends the run with status 1, after the figures of the others.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import document
import environment
from goals import AT_LEAST, GOALS, JOBS, Goal, Job, Point, found

RESULTS = environment.BENCH / "results"
RUNS = 5
LONGEST_S = 600.0  # for one process
QUIET_LOAD = 0.3  # above it the machine does something else
Samples = dict[Point, list[float]]


def run(job: Job, variables: dict[str, str], runs: int, samples: Samples) -> list[str]:
    """Run a job's contenders in rounds, collect what they report and return those that failed."""
    began = time.monotonic()
    failed: dict[str, None] = {}
    for _ in range(1 if job.once else runs):
        for command in job.commands:
            if command in failed:
                continue
            lines = _lines(command, variables)
            if lines is None:
                failed[command] = None
            for line in lines or ():
                for name, value in line["values"].items():
                    samples.setdefault((line["row"], name), []).append(value)
    say(f"{job.name:<10} {time.monotonic() - began:6.1f} s")
    return [*failed]


def _lines(command: str, variables: dict[str, str]) -> list[dict[str, dict[str, float]]] | None:
    """Run a contender; return what it reports, None if it failed."""
    script, *words = command.split()
    path = environment.BENCH / script
    try:
        done = subprocess.run(
            [environment.PYTHON, path, *words], check=False, capture_output=True, text=True,
            env=variables, cwd=path.parent, timeout=LONGEST_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        say(f"{command} took too long")
        return None
    if done.returncode:
        say(f"{command} failed:\n{done.stderr.strip()[-1_500:]}")
        return None
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"row"')]


def say(text: str) -> None:
    print(text, flush=True)


class Row:
    """A goal with what was measured.

    A ratio is the median of the rounds' own ratios: within a round both ran one soon after the
    other, while a machine that others use too may be slower for minutes.
    """

    def __init__(self, goal: Goal, samples: Samples) -> None:
        self.goal = goal
        self._ours = samples.get(goal.ours, [])
        self._theirs = samples.get(goal.theirs, []) if goal.theirs else []
        self.ours = statistics.median(self._ours) if self._ours else None
        self.theirs = statistics.median(self._theirs) if self._theirs else None
        self.value = self._value()

    def _value(self) -> float | None:
        if self.ours is None:
            return None
        if self.goal.theirs is None:
            return self.ours * self.goal.scale
        if self.theirs is None:
            return None
        if len(self._ours) != len(self._theirs):  # a process failed, and was reported
            rounds = [(self.ours, self.theirs)]
        else:
            rounds = list(zip(self._ours, self._theirs, strict=True))
        if self.goal.less:
            return statistics.median(ours - theirs for ours, theirs in rounds) * self.goal.scale
        at_least = self.goal.kind == AT_LEAST
        return statistics.median(
            theirs / ours if at_least else ours / theirs for ours, theirs in rounds
        )

    @property
    def reached(self) -> str:
        if self.value is None:
            return "not measured"
        above = self.value >= self.goal.limit
        return "yes" if above == (self.goal.kind == AT_LEAST) else "NO"

    def cells(self) -> list[str]:
        goal = self.goal
        shown = "-" if self.value is None else f"{_number(self.value)} {goal.unit}"
        return [
            str(goal.number), goal.what, _number(self.ours), _number(self.theirs), shown,
            f"{goal.kind} {goal.limit:g} {goal.unit}", self.reached,
        ]  # fmt: skip


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.3g}"


def measured(samples: Samples) -> list[Row]:
    rows = [Row(goal, samples) for goal in (*GOALS, *found(samples))]
    return [row for row in rows if row.ours is not None]


def table(rows: list[Row]) -> str:
    """The result as Markdown that reads well as text too."""
    head = ["#", "what", "ours", "peer", "result", "goal", "reached"]
    lines = [head, *(row.cells() for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    lines.insert(1, ["-" * width for width in widths])
    return "\n".join(
        "| "
        + " | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True))
        + " |"
        for line in lines
    )


def facts(machine: dict[str, Any], commit: str, runs: int) -> str:
    """Where and on what the table was made."""
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    quiet = "" if machine["load"] <= QUIET_LOAD else " The machine was NOT quiet."
    return (
        f"Commit {commit}; {machine['cores']} cores, {machine['model']}, {machine['system']}; "
        f"load at the start {machine['load']:.2f}; medians of {runs} runs.{quiet}\n\n{versions}."
    )


def keep(name: str, rows: list[Row], samples: Samples, facts_text: str, **more) -> Path:
    RESULTS.mkdir(exist_ok=True)
    medians = {point: statistics.median(values) for point, values in samples.items()}
    data = {
        **more,
        "medians": [{"row": row, "name": name_, "value": medians[row, name_],
                     "runs": samples[row, name_]} for row, name_ in sorted(medians)],
        "goals": [dict(zip(("number", "what", "ours", "peer", "result", "goal", "reached"),
                           row.cells(), strict=True)) for row in rows],
    }  # fmt: skip
    _remember(name, data, medians)
    (RESULTS / f"{name}.json").write_text(json.dumps(data, indent=1) + "\n")
    path = RESULTS / f"{name}.md"
    path.write_text(f"# {name}\n\n{facts_text}\n\n{table(rows)}\n\n{_medians(medians)}\n")
    return path


def _remember(name: str, data: dict, medians: dict[Point, float]) -> None:
    """Add a run to the history; only the last results of a kind of machine stay as files."""
    machine = data["machine"]
    line = {
        "name": name, "date": name[:10], "commit": data["commit"], "model": machine["model"],
        "cores": machine["cores"], "load": round(machine["load"], 2), "runs": data["runs"],
        "medians": {f"{row}|{what}": float(f"{value:.4g}")
                    for (row, what), value in sorted(medians.items())},
    }  # fmt: skip
    with (RESULTS / "history.jsonl").open("a") as history:
        history.write(json.dumps(line, separators=(",", ":")) + "\n")
    for path in RESULTS.glob("*.json"):
        if json.loads(path.read_text())["machine"]["model"] == machine["model"]:
            path.unlink()
            path.with_suffix(".md").unlink()


def _medians(medians: dict[Point, float]) -> str:
    lines = ["| measured | contender | median |", "|---|---|---|"]
    lines += [
        f"| {row} | {name} | {_number(medians[row, name])} |" for row, name in sorted(medians)
    ]
    return "\n".join(lines)


def main() -> None:
    names = [job.name for job in JOBS]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME",
                        help=f"of {', '.join(names)}")  # fmt: skip
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--quick", action="store_true", help="one run each: a look, not a result")
    words = parser.parse_args()
    runs = 1 if words.quick else words.runs
    began = time.monotonic()
    try:
        environment.prepare()
        machine, commit = environment.machine(), environment.commit()
        if machine["load"] > QUIET_LOAD:
            say(f"The load is {machine['load']:.2f}: the machine is not quiet, so nor are figures.")
        samples: Samples = {}
        failed: list[str] = []
        with environment.variables(runs) as variables:
            for job in JOBS:
                if job.name in words.only:
                    before = {row.goal for row in measured(samples)}
                    failed += run(job, variables, runs, samples)
                    if new := [row for row in measured(samples) if row.goal not in before]:
                        say(table(new))
    except environment.Unprepared as problem:
        sys.exit(str(problem))
    except KeyboardInterrupt:
        sys.exit("Stopped; the tables above have what was measured until then.")
    wanted = [Row(goal, samples) for goal in (*GOALS, *found(samples))]
    rows = measured(samples) if words.only != names else wanted
    text = facts(machine, commit, runs)
    say(f"\n{text}\n\n{table(rows)}\n\n{time.monotonic() - began:.0f} s")
    if failed:
        sys.exit(f"Not measured, because they failed: {', '.join(failed)}.")
    if not words.quick and words.only == names:
        date = datetime.now(UTC).strftime("%Y-%m-%d")
        path = keep(
            f"{date}-{commit}", rows, samples, text, machine=machine, commit=commit, runs=runs
        )
        say(f"Kept in {path.relative_to(environment.ROOT)}.")
        if machine["load"] <= QUIET_LOAD:
            document.put("results", f"{text}\n\n{table(rows)}")


if __name__ == "__main__":
    main()
