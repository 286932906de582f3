"""`python -m dataflow_assets.cli`: the same as `dataflow`."""

import sys

from dataflow_assets.cli import main

sys.exit(main())
