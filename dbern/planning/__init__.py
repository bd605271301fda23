"""From a spec to a plan, without reading a record."""
