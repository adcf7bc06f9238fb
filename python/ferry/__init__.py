"""Ferry for Python."""
