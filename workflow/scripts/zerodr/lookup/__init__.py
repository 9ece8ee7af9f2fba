"""Answer single queries with what the bench indexed and embedded: on the command line and as a web page."""
