"""Tableflow: files of WarpStream's that declare tables over topics."""
