"""Files: saved models, and the machine that they were made on."""
