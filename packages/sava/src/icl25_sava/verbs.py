"""The verbs of the command line: read, value, write, and say what came out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from rich.table import Table

from icl25_sava import workflows
from icl25_sava.audits import detection_summary, known_rows, read_flags
from icl25_sava.sava import SAVA, dataset_distance
from icl25_sava.selection import prune_mask
from icl25_sava.store import Store
from icl25_sava.tables import read_values, write_kept, write_values
from icl25_shared import InputError, Output, atomic_path, to_jsonable

if TYPE_CHECKING:
    from icl25_sava import cli

_SHOWN = 10


def run_value(flags: cli.Value) -> Output:
    """Value the rows of a file."""
    out = _output(flags.out, Path("values.parquet"), flags.force)
    options = flags.options()
    _check_store(flags)
    train, val = workflows.read_pair(flags.reading(), flags.train, flags.val, labels=flags.lambda_y != 0)
    store = _prepare_store(flags)
    n_jobs = workflows.workers(flags.jobs, len(train), len(val))
    model = workflows.make_method(flags.method, {**options, "store": store, "n_jobs": n_jobs})
    model.fit(workflows.images(train), train.y, workflows.images(val), val.y)
    if store is not None:
        workflows.store_ids(store, train.ids, val_ids=val.ids, reading=flags.reading())
    return _write(model, train.ids, val.ids, out, flags.force, flags.method)


def run_add(flags: cli.Add) -> Output:
    """Value new rows beside the old ones."""
    out = _output(flags.out, Path("values.parquet"), flags.force)
    model = SAVA.load(flags.store, device=flags.device, verbose=0 if flags.quiet else 1)
    pending, segments = model.valuation_.pending, model.valuation_.segments
    if pending and len(segments) == 1:
        raise InputError(f"the first run of {flags.store} is not complete: finish it with `value --store ... --resume`")
    if pending and not flags.resume:
        raise InputError(
            f"an `add` to {flags.store} broke off with {len(pending)} batches to go: repeat it with --resume"
        )
    if flags.resume and not pending:
        raise InputError(f"nothing to resume in {flags.store}: it is complete")
    kept = workflows.stored_ids(flags.store)
    reading = workflows.Reading(
        *(new if new is not None else old for new, old in zip(flags.reading(), kept.reading, strict=True))
    )
    data = reading.read(flags.new)
    if data.y is None and model.lambda_y != 0:
        raise InputError(f"{flags.new}: no labels: name their column with --label")
    # Ids are kept before their rows are solved, so a run that failed or broke off may have left more ids than rows.
    known = kept.train[: sum(len(segment) for segment in (segments[:-1] if pending else segments))]
    ids = np.concatenate([known, workflows.new_ids(known, data, reading.id_column)])
    model.valuation_.set_workers(workflows.workers(flags.jobs, len(data), len(kept.val)))
    workflows.store_ids(flags.store, ids, reading=kept.reading)
    model.partial_fit(workflows.images(data), data.y)
    return _write(model, ids, kept.val, out, flags.force, "sava")


def run_prune(flags: cli.Prune) -> Output:
    """Choose the rows to keep."""
    out = _output(flags.out, Path("kept.csv"), flags.force)
    chosen = {"fraction": flags.fraction, "threshold": flags.threshold, "keep": flags.keep}
    given = [f"--{name}" for name, option in chosen.items() if option is not None]
    if len(given) != 1:
        raise InputError(f"give exactly one of --fraction, --threshold and --keep, found {', '.join(given) or 'none'}")
    table = read_values(flags.values)
    if flags.per_class and "label" not in table:
        raise InputError(f'{flags.values} has no column "label", which --per-class needs')
    mask = prune_mask(
        table["value"].to_numpy(np.float64),
        fraction=flags.fraction,
        threshold=flags.threshold,
        n=flags.keep,
        labels=table["label"].to_numpy() if flags.per_class else None,
    )
    write_kept(out, table["id"].to_numpy()[~mask], flags.force)
    data: dict[str, Any] = {"rows": len(table), "kept": int((~mask).sum()), "pruned": int(mask.sum()), "out": str(out)}
    view: list[Any] = [f"kept {data['kept']:,} of {len(table):,} rows, pruned {data['pruned']:,}: ids in {out}"]
    if "label" in table:
        counts = table.assign(pruned=mask).groupby("label")["pruned"].agg(["size", "sum"])
        data["per_class"] = {str(label): {"rows": int(n), "pruned": int(k)} for label, n, k in counts.itertuples()}
        rows = [(str(label), f"{n:,}", f"{k:,}", f"{k / n:.0%}") for label, n, k in counts.itertuples()]
        view.insert(0, _table("Pruned rows per class", ["class", "rows", "pruned", "share"], rows[:30]))
    return Output(to_jsonable(data), view)


def run_evaluate(flags: cli.Evaluate) -> Output:
    """Measure detection."""
    table = read_values(flags.values)
    values, mask = known_rows(table, flags.truth, flags.audit)
    summary = detection_summary(values, mask)
    rows = [
        (f"{p['share']:.0%}", f"{p['inspected']:,}", f"{p['found']:.1%}", f"{p['precision']:.1%}")
        for p in summary["curve"]
    ]
    view: list[Any] = [
        _table(
            f"{summary['n_bad']:,} bad rows among {summary['n']:,} known ones: AUC {summary['auc']:.4f}",
            ["inspected, worst first", "rows", "of the bad rows found", "bad among inspected"],
            rows,
        )
    ]
    if flags.out is not None:
        from icl25_sava.evaluation import detection_curve
        from icl25_sava.pictures import save_pictures
        from icl25_sava.plots import plot_detection

        figure = plot_detection({"values": detection_curve(values, mask)})
        summary["picture"] = save_pictures({"detection.png": figure}, flags.out, flags.force)[0]
        view.append(f"picture in {summary['picture']}")
    return Output(to_jsonable(summary), view)


def run_distance(flags: cli.Distance) -> Output:
    """Measure the distance."""
    first, second = workflows.read_pair(flags.reading(), flags.first, flags.second, labels=flags.lambda_y != 0)
    n_jobs = workflows.workers(flags.jobs, len(first), len(second))
    model = SAVA(**flags.options(), n_jobs=n_jobs)
    distance = dataset_distance(
        workflows.images(first), first.y, workflows.images(second), second.y, debias=flags.debias, model=model
    )
    data = {"distance": distance, "debiased": flags.debias, "rows": [len(first), len(second)]}
    kind = "debiased distance" if flags.debias else "distance"
    return Output(to_jsonable(data), [f"{kind} between {flags.first} and {flags.second}: {distance:.6g}"])


def run_compare(flags: cli.Compare) -> Output:
    """Run the methods."""
    names = [name.strip() for name in flags.methods.split(",") if name.strip()]
    unknown = [name for name in names if name not in workflows.METHODS]
    if unknown or not names:
        raise InputError(f"--methods: expected some of {', '.join(workflows.METHODS)}, found {flags.methods!r}")
    if (flags.truth is None) != (flags.audit is None):
        raise InputError("--truth and --audit belong together: the column, and the file that has it")
    out = None if flags.out is None else _output(flags.out, Path("values.parquet"), flags.force)
    train, val = workflows.read_pair(flags.reading(), flags.train, flags.val, labels=flags.lambda_y != 0)
    known = None
    if flags.audit is not None and flags.truth is not None:
        known = read_flags(flags.audit, flags.truth, train.ids)
    table, values = workflows.compare_methods(
        train, val, names, {**flags.options(), **({"n_jobs": flags.jobs} if flags.jobs else {})}
    )
    if known is not None:
        ids = train.ids.astype(str)
        place = pd.Series(np.arange(len(ids)), index=ids)[known.index].to_numpy()
        table["auc"] = [detection_summary(values[name][place], known.to_numpy())["auc"] for name in table["method"]]
    columns = ["method", "seconds", f"rank correlation with {names[0]}"] + (["AUC"] if known is not None else [])
    rows = [
        (
            line["method"],
            f"{line['seconds']:.2f}",
            f"{line['rank_correlation']:.3f}",
            *([f"{line['auc']:.4f}"] if known is not None else []),
        )
        for line in table.to_dict("records")
    ]
    view: list[Any] = [_table(f"{len(train):,} training rows, {len(val):,} validation rows", columns, rows)]
    data: dict[str, Any] = {"methods": table.to_dict("records")}
    if out is not None:
        with atomic_path(out, force=flags.force) as path:
            frame = pd.DataFrame({"id": train.ids, **values})
            frame.to_csv(path, index=False) if out.suffix == ".csv" else frame.to_parquet(path, index=False)
        data["out"] = str(out)
        view.append(f"values of each method in {out}")
    return Output(to_jsonable(data), view)


def run_info(flags: cli.Info) -> Output:
    """Describe the store."""
    store = Store(flags.store)
    meta = store.meta
    n_batches = sum(segment["n_batches"] for segment in meta["segments"])
    done = len(store.ledger.done())
    data = {
        "store": str(flags.store),
        "complete": done >= n_batches,
        "rows": sum(segment["n_rows"] for segment in meta["segments"]),
        "calls": len(meta["segments"]),
        "batches": n_batches,
        "batches_done": done,
        "validation_rows": meta["n_validation"],
        "features": meta["n_features"],
        "classes": store.classes().tolist(),
        "seed": meta["seed"],
        "config": meta["config"],
        "package": meta["package"],
    }
    state = "complete" if data["complete"] else f"{done} of {n_batches} batches done; go on with --resume"
    rows = [
        ("state", state),
        ("training rows", f"{data['rows']:,} in {data['calls']} call(s)"),
        ("validation rows", f"{data['validation_rows']:,}"),
        ("features", f"{data['features']:,}"),
        ("classes", f"{len(data['classes'])}: {', '.join(map(str, data['classes'][:12]))}"),
        ("seed", str(data["seed"])),
        *((name, str(value)) for name, value in data["config"].items()),
    ]
    view: list[Any] = [_table(str(flags.store), ["", ""], rows)]
    if flags.out is not None:
        if not data["complete"]:
            raise InputError(f"the store {flags.store} is not complete: there are no values to write yet")
        kept = workflows.stored_ids(flags.store)
        out = _output(flags.out, Path("values.parquet"), flags.force)
        write_values(out, workflows.value_table(SAVA.load(flags.store), kept.train, kept.val), flags.force)
        data["out"] = str(out)
        view.append(f"values of all rows in {out} (higher is better)")
    return Output(to_jsonable(data), view)


def run_sample(flags: cli.Sample) -> Output:
    """Write the files."""
    from icl25_sava.corruption import corrupt
    from icl25_sava.datasets import load_digits_split

    folder = flags.out if flags.out is not None else Path("sample")
    if folder.is_file():
        raise InputError(f"--out {folder} is a file, expected a folder")
    split = load_digits_split(1000, 400, flags.seed)
    X, y, mask = corrupt(split.train.X, split.train.y, "labels", 0.3, flags.seed)
    ids = [f"digit-{number:04d}" for number in range(len(y))]
    val_ids = [f"clean-{number:04d}" for number in range(len(split.val.y))]
    pixels = [f"pixel_{number}" for number in range(X.shape[1])]
    tables = {
        "train.csv": pd.DataFrame(X, columns=pixels).assign(digit=y).assign(id=ids),
        "val.csv": pd.DataFrame(split.val.X, columns=pixels).assign(digit=split.val.y, id=val_ids),
        "audit.csv": pd.DataFrame({"id": ids, "wrong": mask}),
    }
    for name, table in tables.items():
        with atomic_path(folder / name, force=flags.force) as path:
            table.to_csv(path, index=False)
    paths = [str(folder / name) for name in tables]
    command = f"icl25-sava value {paths[0]} {paths[1]} --label digit --id-column id"
    return Output({"files": paths}, [*(f"wrote {path}" for path in paths), f"try: {command}"])


def _check_store(flags: cli.Value) -> None:
    if flags.store is None:
        if flags.resume:
            raise InputError("--resume goes on with the run of a store: name it with --store")
        return
    if flags.method != "sava":
        raise InputError(f"--store is for --method sava, found {flags.method}")
    if Store(flags.store).exists and not (flags.resume or flags.force):
        raise InputError(f"the store {flags.store} exists: --resume goes on with it, --force begins anew")


def _prepare_store(flags: cli.Value) -> Path | None:
    """Make room for a new store; called once the input has been read, so that a slip costs no old one."""
    if flags.store is not None and not flags.resume and Store(flags.store).exists:
        Store(flags.store).remove()
    return flags.store


def _output(out: Path | None, default: Path, force: bool) -> Path:
    """The path to write to, refused before the work begins where it cannot be written after it."""
    path = default if out is None else out
    if path.is_dir():
        raise InputError(f"--out {path} is a folder, expected a file such as {path / default.name}")
    if path.exists() and not force:
        raise InputError(f"--out {path} exists: --force replaces it")
    known = (".parquet", ".pq", ".csv", ".npy", ".txt") if default.suffix == ".csv" else (".parquet", ".pq", ".csv")
    if path.suffix.lower() not in known:
        raise InputError(f"--out {path}: expected a name that ends in one of {', '.join(known)}")
    return path


def _write(model: Any, ids: np.ndarray, val_ids: np.ndarray, out: Path, force: bool, method: str) -> Output:
    table = workflows.value_table(model, ids, val_ids)
    write_values(out, table, force)
    worst = table.iloc[model.ranking_[:_SHOWN]]
    data: dict[str, Any] = {
        "out": str(out),
        "method": method,
        "rows": len(table),
        "validation_rows": len(val_ids),
        "classes": len(model.classes_),
        "worst": worst.to_dict("records"),
    }
    if hasattr(model, "distance_"):
        data |= {"distance": model.distance_, "batches": list(model.batch_costs_.shape)}
    columns = ["rank", "id", "label", "value"] + (["nearest validation id"] if "nearest_id" in table else [])
    rows = [
        (
            str(line["rank"]),
            str(line["id"]),
            str(line["label"]),
            f"{line['value']:.4g}",
            *([str(line["nearest_id"])] if "nearest_id" in table else []),
        )
        for line in data["worst"]
    ]
    view = [
        _table(f"The {len(rows)} worst of {len(table):,} rows", columns, rows),
        f"values of all rows in {out} (higher is better)",
    ]
    return Output(to_jsonable(data), view)


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    table = Table(title=title, title_justify="left", show_header=any(columns))
    for column in columns:
        table.add_column(column, justify="right" if column not in {"", "id", "label", "class", "method"} else "left")
    for row in rows:
        table.add_row(*row)
    return table
