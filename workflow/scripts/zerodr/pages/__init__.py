"""Pages for people: leaderboard, methods query by query, report. One file each, for any browser, without a network."""
