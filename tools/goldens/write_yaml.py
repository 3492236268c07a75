"""Writes the texts of `yaml_written.json` anew, after a change of `kthena.machinery.yaml.dump`.

    python tools/goldens/write_yaml.py && (cd tools/goldens && go run . ../../tests/unit/machinery/golden)

The Go program then says what kubectl reads in them.
"""

import json
from pathlib import Path

from kthena.machinery.yaml import dump

TABLE = Path(__file__).parents[2] / "tests/unit/machinery/golden/yaml_written.json"


def main() -> None:
    """Replace the text of each row by what `dump` writes for its value."""
    rows = json.loads(TABLE.read_text())
    rows = [row | {"text": dump(row["value"])} for row in rows]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    TABLE.write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main()
