"""Writes the pages to their files with `--write`, else to standard output."""

import sys

from dataflow_assets.reference import FOLDER, PAGES

for name, render in PAGES.items():
    if "--write" in sys.argv[1:]:
        (FOLDER / name).parent.mkdir(exist_ok=True)
        (FOLDER / name).write_text(render(), encoding="utf-8")
    else:
        sys.stdout.write(render())
