"""Plain files of a sweep: run folders, markers, ledger, driver lock, lineage. No server."""
