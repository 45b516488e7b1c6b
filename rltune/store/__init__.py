"""The plain files of a sweep: run folders, markers, JSON lines, ledger, locks. No server."""
