"""Films of a recording: the environment, and beside it what the search thought."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from lightzero_lite.types import BoolArray, UserError
from lightzero_lite.viewing.recording import Moment, Recording

FORMATS = (".gif", ".mp4")
PANEL = 240  # width of the panel beside it
LEAST_HEIGHT = 270
MARGIN, ROW = 12, 17
BARS_HEIGHT = 118  # of which each bar gets ROW at most
MOST_BARS = 9  # actions that get a bar: the most visited of many
GIF_FRAMES = 125  # what a GIF of a long episode is thinned out to
SHORTEST = 0.03  # seconds; browsers show a GIF's shorter frames for longer
LAST = 1.5  # seconds that the last frame stays
INK, GREY, PALE, BAR, CHOSEN = "#222222", "#777777", "#e8e8e8", "#9db8d6", "#d55e00"


def write_film(recording: Recording, out: Path, every: int | None = None) -> None:
    """Write a GIF or an MP4, as the suffix of `out` says.

    Args:
        recording: The episode.
        out: Where to.
        every: Show each `every`-th step and the end; None: all in an MP4, some in a long GIF.

    Raises:
        UserError: What writes an MP4 is not installed.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix == ".gif":
        write_gif(recording, out, every)
    else:
        every = every or 1
        write_mp4(frames(recording, every), out, every / recording.fps)


def frames(recording: Recording, every: int) -> Iterator[Image.Image]:
    """Draw each `every`-th step, and the end."""
    values = [moment.root_value for moment in recording.moments]
    returns = np.concatenate([[0.0], np.cumsum(recording.rewards, dtype=np.float64)])
    for step in [*range(0, len(values), every), len(values)]:
        yield _frame(recording, step, values, float(returns[step]))


def write_gif(recording: Recording, out: Path | BinaryIO, every: int | None = None) -> None:
    """Write an animated GIF that repeats; `every` as for `write_film`."""
    every = every or math.ceil(len(recording.moments) / GIF_FRAMES)
    images = list(frames(recording, every))
    # One palette for all frames, made from a few of them: colours do not flicker.
    few = images[:: max(1, len(images) // 16)]
    strip = Image.new("RGB", (images[0].width, images[0].height * len(few)))
    for i, image in enumerate(few):
        strip.paste(image, (0, i * image.height))
    palette = strip.quantize(128)
    flat = [image.quantize(palette=palette, dither=Image.Dither.NONE) for image in images]
    each = round(1000 * max(every / recording.fps, SHORTEST))
    durations = [each] * (len(flat) - 1) + [round(1000 * LAST)]
    flat[0].save(
        out, "GIF", save_all=True, append_images=flat[1:], duration=durations, loop=0, optimize=True
    )


def write_mp4(images: Iterable[Image.Image], out: Path, seconds: float) -> None:
    """Write an MP4, `seconds` a frame.

    Raises:
        UserError: imageio-ffmpeg is not installed.
    """
    try:
        from imageio_ffmpeg import write_frames
    except ModuleNotFoundError:
        raise UserError(
            f"out={out}: imageio-ffmpeg is not installed: pip install 'lightzero-lite[viz]', "
            "or name a .gif"
        ) from None
    writer, last = None, b""
    for image in images:
        last = image.tobytes()
        if writer is None:
            writer = write_frames(str(out), image.size, fps=1 / seconds, macro_block_size=2)
            writer.send(None)
        writer.send(last)
    assert writer is not None
    for _ in range(round(LAST / seconds)):
        writer.send(last)
    writer.close()


def _frame(
    recording: Recording, step: int, values: list[float], episode_return: float
) -> Image.Image:
    """Draw one step; step T is the end of the episode."""
    is_over = step == len(values)
    picture = recording.last_picture if is_over else recording.moments[step].picture
    height, width, _ = picture.shape
    canvas = Image.new("RGB", (width + PANEL, max(LEAST_HEIGHT, height)), "white")
    canvas.paste(Image.fromarray(picture), (0, (canvas.height - height) // 2))
    draw = ImageDraw.Draw(canvas)
    left, right = width + MARGIN, canvas.width - MARGIN
    small, large = ImageFont.load_default(12), ImageFont.load_default(20)
    draw.text((left, 8), f"step {step} of {len(values)}", INK, small)
    draw.text((right, 8), f"return {episode_return:g}", INK, small, anchor="ra")
    if is_over:
        end = "terminated" if recording.is_terminated else "cut by the time limit"
        draw.text((left, 34), "the end", INK, large)
        draw.text((left, 62), end, GREY, small)
    else:
        moment = recording.moments[step]
        draw.text((left, 30), f"value {moment.root_value:.3g}", INK, large)
        draw.text((right, 38), f"network {moment.raw_value:.3g}", GREY, small, anchor="ra")
        _draw_visits(draw, moment, recording.legal_actions[step], (left, 64, right))
    _draw_values(draw, values, step, (left, canvas.height - 52, right, canvas.height - 10))
    return canvas


def _draw_visits(
    draw: ImageDraw.ImageDraw, moment: Moment, legal: BoolArray, place: tuple[int, int, int]
) -> None:
    """Draw a bar for each action, the chosen one in another colour."""
    left, top, right = place
    small = ImageFont.load_default(11)
    counts = moment.visit_counts
    shown = sorted(np.argsort(-counts, kind="stable")[:MOST_BARS].tolist())
    of_all = f", {len(shown)} of {len(counts)} actions" if len(shown) < len(counts) else ""
    draw.text((left, top), f"visits of {counts.sum()} simulations{of_all}", GREY, small)
    first, most = left + 22, right - 40
    height = min(ROW, BARS_HEIGHT // len(shown))
    for row, action in enumerate(shown):
        y = top + ROW + height * row
        is_chosen = action == moment.action
        ink = CHOSEN if is_chosen else INK if legal[action] else GREY
        draw.text((first - 6, y), str(action), ink, small, anchor="ra")
        draw.rectangle((first, y + 1, most, y + height - 2), PALE)
        length = round((most - first) * counts[action] / max(1, counts.sum()))
        if length:
            draw.rectangle(
                (first, y + 1, first + length, y + height - 2), CHOSEN if is_chosen else BAR
            )
        text = str(counts[action]) if legal[action] else "illegal"
        draw.text((right, y), text, ink, small, anchor="ra")


def _draw_values(
    draw: ImageDraw.ImageDraw, values: list[float], step: int, box: tuple[int, int, int, int]
) -> None:
    """Draw the root values of the whole episode, those up to this step in ink."""
    left, top, right, bottom = box
    low, high = min(values), max(values)
    small = ImageFont.load_default(10)
    draw.text((left, top - 14), "root value", GREY, small)
    draw.text((right, top - 14), f"{low:.3g} .. {high:.3g}", GREY, small, anchor="ra")
    xs = np.linspace(left, right, max(2, len(values)))
    ys = bottom - (np.array(values) - low) / max(high - low, 1e-9) * (bottom - top)
    points = list(zip(xs.tolist(), ys.tolist(), strict=False))
    draw.line(points, PALE, 2)
    draw.line(points[: step + 1], INK, 1)
    x, y = points[min(step, len(points) - 1)]
    draw.ellipse((x - 3, y - 3, x + 3, y + 3), CHOSEN)
