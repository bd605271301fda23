"""Components of a release and their JSON: what plan, writer, store and reader share."""
