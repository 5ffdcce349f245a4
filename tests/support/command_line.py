"""What a user reads when a command fails."""

from vanilla_transformer.cli import main


def error_of(capsys, *arguments):
    """Run a command that must fail and return its one-line error."""
    try:
        code = main([str(argument) for argument in arguments])
    except SystemExit as exit:
        code = exit.code
    captured = capsys.readouterr()
    assert code == 2
    line, empty = captured.err.rsplit("\n", 1)
    line = line.splitlines()[-1]
    assert empty == ""
    assert "Traceback" not in captured.err
    assert line.startswith("vanilla-transformer")
    return line
