"""Write fieldkit_results.tsv: what fieldkit's LineageStore makes of rows that are hard to carry.

Needs an environment with `fieldkit` installed; tests/store/test_store_lineage_fieldkit.py holds the
same rows and reads the file without it.
"""

import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "lineage"))

from fieldkit_rows import HARD_ROWS  # noqa: E402


def main():
    from fieldkit.lineage import FailureLabel, LineageStore, Trial

    with tempfile.TemporaryDirectory() as folder:
        store = LineageStore(Path(folder), lower_is_better=False)
        for row in HARD_ROWS:
            store.append(Trial(**row | {"status": FailureLabel(row["status"])}))
        (HERE / "fieldkit_results.tsv").write_bytes(store.results_path.read_bytes())


if __name__ == "__main__":
    main()
