"""How many replicas run where the configuration leaves a choice: the load is read, a pure policy decides, `Applier` carries it out."""
