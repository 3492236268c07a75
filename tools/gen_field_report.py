"""Writes `docs/reference/field-report.md` from the CRDs, the refusals and `tests/fields.yaml`.

python tools/gen_field_report.py            write it
python tools/gen_field_report.py --check    write nothing; exit 1 when it differs
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml

from kthena.api.crd.fieldreport import field_states, report_page
from kthena.api.crd.published import published_crds

ROOT = Path(__file__).resolve().parent.parent
REPORT = ROOT / "docs/reference/field-report.md"


def main() -> None:
    """Write or check."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    check: bool = parser.parse_args().check

    table: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "tests/fields.yaml").read_text())
    states = field_states(published_crds(), table["schema-only"])
    page = report_page(states, table["acts"])
    current = REPORT.read_text() if REPORT.is_file() else None
    if page == current:
        return
    if check:
        sys.exit(f"{REPORT.name} is out of date; run: python tools/gen_field_report.py")
    REPORT.write_text(page)
    print(REPORT.relative_to(ROOT))


if __name__ == "__main__":
    main()
