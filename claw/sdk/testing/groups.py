"""The names of the nine groups, for those who must not wait for the checks themselves."""

GROUPS = (
    "registers", "imports", "tasks", "starts", "ends", "judged", "together", "stored", "settings",
)
