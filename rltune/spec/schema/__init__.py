"""The typed trees of a trial config, a sweep file and a protocol file."""
