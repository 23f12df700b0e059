"""The project's promises about itself: commands, sizes, floors, borders, and what it documents."""

from __future__ import annotations

import ast
import re
import runpy
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from lightzero_lite.config import load_config
from lightzero_lite.runtime.distributed import Ranks
from lightzero_lite.sweep import expanded
from lightzero_lite.train import build_trainer

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "lightzero_lite"
CHECKER = runpy.run_path(str(ROOT / "scripts" / "check_run_folder.py"))

# A file imports package files of lower floors only, and files of floor 0 import floor-0 leaves.
LEAVES = {"types.py", "sections.py", "policy_options.py", "compiled.py"}
LEAVES |= {f"envs/games/{name}.py" for name in ("pictures", "tic_tac_toe", "connect_four")}
FLOORS = {
    "types.py": 0,
    "sections.py": 0,
    "compiled.py": 0,
    "transforms.py": 0,
    "config.py": 0,
    "policy_options.py": 0,
    "counters.py": 0,
    "envs/entry_point.py": 0,
    "runtime/clock.py": 0,
    "runtime/interfaces.py": 0,
    "runtime/summaries.py": 0,
    "runtime/versions.py": 0,
    "runtime/schedules.py": 0,
    "runtime/seeding.py": 0,
    "networks.py": 1,
    "gradients.py": 0,
    "denormals.py": 0,
    "normalization.py": 1,
    "reference.py": 1,
    "predictor_kernels.py": 1,
    "search/tree.py": 1,
    "replay/episode.py": 1,
    "replay/sum_tree.py": 1,
    "replay/episode_table.py": 1,
    "envs/action_masks.py": 0,
    "envs/action_repeat.py": 0,
    "envs/games/pictures.py": 0,
    "envs/games/tic_tac_toe.py": 0,
    "envs/games/connect_four.py": 0,
    "envs/games/minimax.py": 0,
    "envs/games/alpha_beta.py": 0,
    "envs/opponents.py": 1,
    "envs/versus.py": 1,
    "matches.py": 2,
    "envs/factory.py": 1,
    "envs/remote.py": 1,
    "envs/adapter.py": 2,
    "envs/worker.py": 3,
    "envs/vector.py": 3,
    "runtime/distributed.py": 1,
    "runtime/lightzero_checkpoint.py": 1,
    "runtime/logging.py": 1,
    "runtime/profiling.py": 1,
    "runtime/progress.py": 1,
    "runtime/run_folder.py": 1,
    "runtime/run_reader.py": 1,
    "runtime/signals.py": 1,
    "predictor.py": 2,
    "losses.py": 2,
    "viewing/line_chart.py": 0,
    "viewing/page.py": 0,
    "search/statistics.py": 2,
    "viewing/tree_picture.py": 2,
    "metrics.py": 1,
    "search/puct.py": 2,
    "search/gumbel.py": 2,
    "replay/storage.py": 2,
    "replay/targets.py": 2,
    "envs/rendering.py": 4,
    "envs/rollout.py": 2,
    "runtime/checkpoint.py": 2,
    "runtime/config_files.py": 2,
    "sweep.py": 2,
    "runtime/user_errors.py": 2,
    "learner.py": 3,
    "search/policies.py": 3,
    "replay/buffer.py": 3,
    "building.py": 4,
    "joint_play.py": 3,
    "collector.py": 4,
    "evaluator.py": 4,
    "reanalyzer.py": 4,
    "reporting.py": 4,
    "loading.py": 5,
    "saving.py": 4,
    "monitoring.py": 4,
    "viewing/recording.py": 5,
    "trainer.py": 5,
    "train.py": 6,
    "viewing/film.py": 6,
}

# Who may name what: everything else in the package may not.
BORDERS = {
    "gymnasium": {
        "envs/action_masks.py",
        "envs/action_repeat.py",
        "envs/adapter.py",
        "envs/factory.py",
        "envs/games/__init__.py",
        "envs/games/tic_tac_toe.py",
        "envs/games/connect_four.py",
        "envs/opponents.py",
        "envs/versus.py",
        "envs/rendering.py",
    },
    "hydra": {"config.py", "sweep.py"},
    "omegaconf": {"config.py"},
    "torch.distributed": {"runtime/distributed.py"},
    "torch.nn.parallel": {"learner.py"},
    "tensorboard": {"runtime/logging.py", "runtime/summaries.py", "runtime/run_reader.py"},
    "torch.utils.tensorboard": {"runtime/logging.py", "runtime/summaries.py"},
    "matplotlib": {"viewing/tree_picture.py"},
    "imageio_ffmpeg": {"viewing/film.py"},
    "PIL": {"envs/rendering.py", "viewing/film.py"},
    "tabulate": {"runtime/logging.py"},
    "tqdm": {"runtime/progress.py"},
    "numpy.random.default_rng": {"runtime/seeding.py"},
    "random": set(),
}
RANDOM_TYPES = {"Generator", "SeedSequence", "default_rng"}


def names_used(source: str) -> set[str]:
    """Return the dotted names that a source imports, and those it reaches through its imports."""
    tree = ast.parse(source)
    names, aliases = set(), {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                names.add(alias.name)
                root = alias.name.partition(".")[0]
                aliases[alias.asname or root] = alias.name if alias.asname else root
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name the package in full"
            for alias in node.names:
                aliases[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                names.add(f"{node.module}.{alias.name}")
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            root, _, rest = ast.unparse(node).partition(".")
            if root in aliases:
                names.add(f"{aliases[root]}.{rest}")
    return names


def files_named(names: set[str], sources: dict[str, str]) -> set[str]:
    """Return the package files among dotted names; a package stands for what it re-exports."""
    found = set()
    for name in names:
        parts = name.split(".")
        # A name is a file, or something in a file: lightzero_lite.types.Episode is in types.py.
        for path in ("/".join(parts[1:]), "/".join(parts[1:-1])):
            if parts[0] != "lightzero_lite" or not path:
                continue
            if f"{path}.py" in sources:
                found.add(f"{path}.py")
                break
            if f"{path}/__init__.py" in sources:
                found |= files_named(names_used(sources[f"{path}/__init__.py"]), sources)
                break
    return found


def everything_reached(path: str, sources: dict[str, str]) -> set[str]:
    """Return the dotted names that a file and all files that it imports use."""
    todo, done, names = {path}, set(), set()
    while todo:
        current = todo.pop()
        done.add(current)
        used = names_used(sources[current])
        names |= used
        todo |= files_named(used, sources) - done
    return names


def is_in(name: str, module: str) -> bool:
    return name == module or name.startswith(f"{module}.")


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    return {p.relative_to(PACKAGE).as_posix(): p.read_text() for p in PACKAGE.rglob("*.py")}


def test_names_are_found_wherever_they_hide():
    source = "import numpy as np\nfrom torch import distributed as d\nimport torch.nn\n"
    source += "def f():\n    import random\n    return np.random.rand(), d.barrier(), torch.utils.x"
    found = names_used(source)
    assert {"numpy.random.rand", "torch.distributed.barrier", "random", "torch.utils.x"} <= found


def test_imports_are_traced_to_files():
    facade = "from lightzero_lite.search.tree import Tree"
    sources = {"search/__init__.py": facade, "search/tree.py": "", "types.py": ""}
    names = {"lightzero_lite.search.Tree", "numpy.types"}
    assert files_named(names, sources) == {"search/tree.py"}
    assert files_named({"lightzero_lite.types"}, sources) == {"types.py"}
    assert files_named({"lightzero_lite.types.Episode"}, sources) == {"types.py"}


def test_every_file_has_a_floor(sources):
    files = {path for path in sources if not path.endswith("__init__.py")}
    assert files == set(FLOORS), "place a new file in FLOORS"


def test_files_import_lower_floors_only(sources):
    upward = [
        f"{path} (floor {floor}) imports {other} (floor {FLOORS[other]})"
        for path, floor in FLOORS.items()
        for other in files_named(names_used(sources[path]), sources) - LEAVES
        if FLOORS[other] >= floor
    ]
    assert upward == []
    for path in LEAVES:
        assert files_named(names_used(sources[path]), sources) <= LEAVES


def test_a_package_re_exports_its_own_files_only(sources):
    for path in sources:
        folder, _, name = path.rpartition("/")
        if name == "__init__.py":
            names = {n for n in names_used(sources[path]) if n.startswith("lightzero_lite")}
            prefix = "lightzero_lite." + folder.replace("/", ".")
            assert all(folder and is_in(other, prefix) for other in names), path


@pytest.mark.parametrize("module", BORDERS)
def test_libraries_stay_behind_their_borders(module, sources):
    users = {path for path in sources if any(is_in(n, module) for n in names_used(sources[path]))}
    assert users <= BORDERS[module]


@pytest.mark.parametrize("library", ["torch", "gymnasium", "hydra", "omegaconf"])
def test_search_and_replay_know_arrays_only(library, sources):
    for path in sources:
        if path.startswith(("search/", "replay/")):
            names = everything_reached(path, sources)
            assert not any(is_in(name, library) for name in names), path


def test_no_global_random_numbers(sources):
    for path in sources:
        names = [n for n in names_used(sources[path]) if n.startswith("numpy.random.")]
        assert {name.split(".")[2] for name in names} <= RANDOM_TYPES, path


def test_files_and_functions_are_short():
    paths = [*PACKAGE.rglob("*.py"), *(ROOT / "scripts").glob("*.py"), ROOT / "train.py"]
    long = []
    for path in paths:
        text = path.read_text()
        if len(text.splitlines()) > 350:
            long.append(f"{path.name}: {len(text.splitlines())} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                length = node.end_lineno - node.lineno + 1
                if length > 60:
                    long.append(f"{path.name}: {node.name} has {length} lines")
    assert long == []


def project_texts() -> list[Path]:
    """Return the text files that are written by hand."""
    folders = [PACKAGE, *(ROOT / name for name in ("configs", "docs", "scripts", "tests", ".ci"))]
    paths = [*ROOT.iterdir(), *(path for folder in folders for path in folder.rglob("*"))]
    suffixes = {".py", ".yaml", ".md", ".toml", ""}
    return [path for path in paths if path.is_file() and path.suffix in suffixes]


def test_nothing_is_left_to_do():
    marks = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X)\b")
    assert [p.name for p in project_texts() if marks.search(p.read_text("utf-8"))] == []


def test_settings_stand_in_pyproject_only():
    names = "ruff.toml .ruff.toml mypy.ini .mypy.ini setup.cfg tox.ini pytest.ini .flake8 .pylintrc"
    assert [name for name in names.split() if (ROOT / name).exists()] == []
    text = (ROOT / "pyproject.toml").read_text()
    assert all(f"[tool.{tool}" in text for tool in ("ruff", "mypy", "pytest"))


def test_all_dependencies_are_pinned():
    pins = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            # Nothing of the machine: no local version (+cpu), no index, no path.
            match = re.fullmatch(r'([\w.-]+)==([\w.]+)(; python_version >= "3\.11")?', line)
            assert match, line
            pins[match[1].lower().replace("_", "-")] = match[2]
    named = re.findall(r'^\s*"([\w.-]+)(?:\[\w+\])?>=', (ROOT / "pyproject.toml").read_text(), re.M)
    assert len(named) >= 14
    assert set(named) <= set(pins)


def readme_commands() -> list[str]:
    """Return the commands of the README's code fences, in order."""
    fences = re.findall(r"^```bash\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    lines = [line.partition("  #")[0] for fence in fences for line in fence.splitlines()]
    return [command.strip() for line in lines for command in line.split("&&")]


def ci_commands() -> list[list[str]]:
    text = (ROOT / ".ci" / "run").read_text()
    return [shlex.split(command) for command in re.findall(r"^within \d+ (.*)$", text, re.M)]


def test_ci_runs_the_commands_of_the_readme():
    first_four = [shlex.split(command) for command in readme_commands()[:4]]
    assert [words[0] for words in first_four] == ["pip", "torchrun", "pip", "pytest"]
    places = [
        next(i for i, words in enumerate(ci_commands()) if words[: len(wanted)] == wanted)
        for wanted in first_four
    ]
    assert places == sorted(places)
    checks = [["ruff", "check"], ["ruff", "format", "--check"], ["mypy"]]
    assert all(check in ci_commands() for check in checks)


def test_ci_bounds_every_command_in_time():
    text = (ROOT / ".ci" / "run").read_text()
    runs = re.findall(r"^.*\b(?:pip install|torchrun|pytest|mypy|ruff|python3?) .*$", text, re.M)
    assert [line for line in runs if not line.startswith(("within ", "#"))] == []


def test_the_commands_of_the_readme_compose():
    commands = [shlex.split(command) for command in readme_commands() if "train.py" in command]
    assert len(commands) >= 6
    for words in commands:
        for overrides in expanded(words[words.index("train.py") + 1 :]):
            load_config(overrides)


def test_the_readme_is_short_and_its_links_lead_somewhere():
    assert len((ROOT / "README.md").read_text().splitlines()) < 150
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        links = re.findall(r"\]\(([^)#:]+)\)", path.read_text())
        assert [link for link in links if not (path.parent / link).exists()] == [], path.name


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a few updates in this process, and return the run folder."""
    return train_into(tmp_path_factory.mktemp("project") / "run", "max_env_step=120")


def train_into(folder: Path, *overrides: str) -> Path:
    small = ["policy.num_simulations=2", "policy.batch_size=8", "policy.use_priority=true"]
    few = ["env.n_evaluator_episode=2", "policy.n_episode=2"]
    command = ["env=cartpole", f"exp_name={folder}", "device=cpu", *small, *few, *overrides]
    build_trainer(command, Ranks()).run()
    return folder


def test_the_run_folder_passes_its_check(run_folder):
    assert list(CHECKER["problems"](run_folder)) == []


def replace(name: str, old: str, new: str) -> Callable[[Path], object]:
    """Return a damage: one text of a run folder replaced by another."""

    def damage(folder: Path) -> None:
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return damage


def cut_short(folder: Path) -> None:
    path = folder / "ckpt" / "iteration_0.pth.tar"
    path.write_bytes(path.read_bytes()[:1000])


@pytest.mark.parametrize(
    ("damage", "finding"),
    [
        (lambda folder: (folder / "notes.txt").touch(), "unexpected: notes.txt"),
        (lambda folder: (folder / "outputs").mkdir(), "unexpected folder: outputs"),
        (
            lambda folder: (folder / "log/serial/events.out.tfevents.1.x").touch(),
            "log/serial holds 2 events files instead of one",
        ),
        (
            lambda folder: (folder / "ckpt/ckpt_best.pth.tar").unlink(),
            "missing: ckpt/ckpt_best.pth.tar",
        ),
        (cut_short, "iteration_0.pth.tar does not load"),
        (
            replace("log/collector/collector_logger.txt", "| reward_std ", "| reward_dev "),
            "collector: table 1 lacks reward_std",
        ),
        (
            replace("log/evaluator/evaluator_logger.txt", "completes", "ends"),
            "evaluator: no line of a finished episode",
        ),
        (
            replace("log/learner/learner_logger.txt", "| total_loss_avg ", "| loss "),
            "learner: table 1 lacks total_loss_avg",
        ),
        (replace("total_config.py", "'seed': 0", "'seed': 1"), "total_config.py and formatted"),
        (replace("total_config.py", "exp_", "import numpy\nexp_"), "total_config.py does not run"),
    ],
)
def test_the_check_finds_what_is_wrong(run_folder, tmp_path, damage, finding):
    copy = shutil.copytree(run_folder, tmp_path / "run")
    damage(copy)
    assert any(problem.startswith(finding) for problem in CHECKER["problems"](copy))


def test_resumed_runs_pass_the_check_and_their_faults_do_not(run_folder, tmp_path):
    run = shutil.copytree(run_folder, tmp_path / "run")
    train_into(run, "max_env_step=160", "resume=auto")
    events = sorted((run / "log" / "serial").iterdir())
    assert len(events) == 2
    # Set back to the first checkpoint: the logs lose the evaluation that ckpt_best is from.
    path = run / "ckpt" / "ckpt_best.pth.tar"
    best = torch.load(path)
    best["counters"]["best_score"] = 400.0
    torch.save(best, path)
    train_into(run, "max_env_step=20", f"resume={run / 'ckpt/iteration_0.pth.tar'}")
    assert list(CHECKER["problems"](run, solved=400)) == []
    best["counters"]["best_score"] = 300.0
    torch.save(best, path)
    shutil.copyfile(events[0], events[0].with_name(f"{events[0].name}.again"))
    found = "\n".join(CHECKER["problems"](run))
    assert "but ckpt_best.pth.tar has 300.0" in found
    assert "the steps of evaluator_iter/reward_mean do not rise" in found


def test_a_run_that_goes_on_in_a_new_folder_passes_the_check(run_folder, tmp_path):
    newest = max(run_folder.glob("ckpt/iteration_*"), key=lambda path: path.stat().st_mtime)
    run = train_into(tmp_path / "run", f"resume={newest}", "max_env_step=200")
    assert not (run / "ckpt" / "iteration_0.pth.tar").exists()
    assert list(CHECKER["problems"](run)) == []


def test_the_check_wants_the_stated_return(run_folder):
    (problem,) = CHECKER["problems"](run_folder, solved=1000)
    assert problem.endswith("below 1000")


def test_all_that_a_run_leaves_is_documented(run_folder):
    written = set()
    for path in (run_folder / "log").glob("*/*_logger.txt"):
        tables = [*CHECKER["row_tables"](path.read_text())]
        tables += CHECKER["grid_tables"](path.read_text())
        written |= {name for table in tables for name in table}
    (events,) = (run_folder / "log" / "serial").iterdir()
    reader = EventAccumulator(str(events))
    reader.Reload()
    written |= {tag.partition("/")[2] for tag in reader.Tags()["scalars"]}
    written |= {tag.partition("/")[0] for tag in reader.Tags()["scalars"]}
    state = torch.load(run_folder / "ckpt" / "ckpt_best.pth.tar")
    written |= {*state, *state["counters"], *state["versions"]}
    written = {re.sub(r"_k\d+$", "_kN", name) for name in written}  # one a model step
    text = (ROOT / "docs" / "run_folder.md").read_text()
    assert {name for name in written if f"`{name}`" not in text} == set()
