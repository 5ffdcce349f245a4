"""Create and save matplotlib figures without pyplot."""

import logging
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..errors import RequestError
from ..storage.atomic import file_written_aside
from ..storage.extras import require
from .fonts import text_properties

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)

GREY = "0.75"  # frames and grids
_MOST_PIXELS = 4000  # maximum width and height of a picture


def save_figure(figure: "Figure", path: str | os.PathLike[str], *, dpi: int = 150) -> Path:
    """Save a figure in the format of the file's extension; a crash keeps the old file.

    Args:
        figure: What a `plot_` function returned.
        path: File to write.
        dpi: Pixels per inch; fewer if a side of the picture would have more than 4,000 pixels.

    Raises:
        ValueError: There is no picture format with that extension.
    """
    path = Path(path)
    form = path.suffix.lstrip(".").lower() or "png"
    formats = figure.canvas.get_supported_filetypes().keys() - {"pgf"}  # needs LaTeX
    if form not in formats:
        endings = ", ".join(sorted(formats))
        raise RequestError(f"got {path.name}; the name must end in one of {endings}.")
    dpi = min(dpi, _MOST_PIXELS / max(figure.get_size_inches()))
    with file_written_aside(path) as aside, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        figure.savefig(aside, format=form, dpi=dpi, bbox_inches="tight", pad_inches=0.1)
    missing = {str(it.message) for it in caught if "missing from font" in str(it.message)}
    if missing:  # matplotlib warned once for each character
        remedy = "install a font with them, such as Noto Sans CJK"
        logger.warning("%s lacks characters that no font has (%d); %s.", path, len(missing), remedy)
    return path


def new_figure(
    width: float, height: float, layout: Literal["constrained", "compressed"] = "constrained"
) -> "Figure":
    """Create an empty figure; width and height are in inches.

    Raises:
        ImportError: Matplotlib is missing; the message says how to install it.
    """
    require("Drawing", "matplotlib")
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout=layout)


def set_title(figure: "Figure", title: str) -> None:
    """Write a title above all panels."""
    figure.suptitle(title, fontsize=11, **text_properties([title]))


def tidy(axis: "Axes") -> None:
    """Add a light grid, and remove the frame above and on the right."""
    axis.grid(color=GREY, linewidth=0.5, alpha=0.6)
    axis.spines[["top", "right"]].set_visible(False)
