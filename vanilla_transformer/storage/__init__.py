"""Reading and writing files: saved models, metrics, and facts about the machine."""
