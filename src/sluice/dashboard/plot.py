"""Plots over epochs as SVG text: stacked bars, lines, and a heat map for more sites than lines can tell apart.

Colours are classes (`c0`, `c1`, … for series, `h0` to `h6` for heat) that the page's style sheet defines for light and
dark. Pointing at an epoch shows its values by SVG's own `title`, so no script is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sluice.dashboard.quantity import Quantity
from sluice.dashboard.series import Series
from sluice.dashboard.text_layout import written

WIDTH, HEIGHT = 560, 240
LEFT, RIGHT, TOP, BOTTOM = 66, 10, 12, 36
COLOURS = 9
HEAT = 7
MOST_LINES = 8
_LISTED = 12  # values named when pointing at an epoch


def stack(title: str, epochs: Sequence[int], series: Sequence[Series], quantity: Quantity, note: str = "") -> str:
    """One bar an epoch, its parts on top of each other."""
    sums = [sum(s.values[i] or 0 for s in series) for i in range(len(epochs))]
    frame = _Frame(epochs, quantity, max(sums, default=0))
    base = [0.0] * len(epochs)
    shapes = []
    for number, one in enumerate(series):
        path = []
        for i, value in enumerate(one.values):
            if value:
                low, high = frame.y(base[i]), frame.y(base[i] + value)
                path.append(f"M{frame.x(i) - frame.bar / 2:.1f} {low:.1f}h{frame.bar:.1f}V{high:.1f}h-{frame.bar:.1f}z")
                base[i] += value
        shapes.append(f'<path class="fill {_colour(number)}" d="{"".join(path)}"/>')
    return _figure(title, note, _legend(series), frame.around("".join(shapes), series))


def lines(title: str, epochs: Sequence[int], series: Sequence[Series], quantity: Quantity, note: str = "") -> str:
    """A line a series; it breaks where there is no value."""
    values = [v for s in series for v in s.values if v is not None]
    frame = _Frame(epochs, quantity, max(values, default=0))
    shapes = []
    for number, one in enumerate(series):
        path, dots, pen = [], [], "M"
        for i, value in enumerate(one.values):
            if value is None:
                pen = "M"
                continue
            x, y = f"{frame.x(i):.1f}", f"{frame.y(value):.1f}"
            path.append(f"{pen}{x} {y}")
            dots.append(f'<circle cx="{x}" cy="{y}" r="2.5"/>')
            pen = "L"
        few = len(epochs) <= 40
        shapes.append(
            f'<path class="line {_colour(number)}" d="{"".join(path)}"/>'
            + (f'<g class="fill {_colour(number)}">{"".join(dots)}</g>' if few else "")
        )
    return _figure(title, note, _legend(series), frame.around("".join(shapes), series))


def heat(title: str, epochs: Sequence[int], series: Sequence[Series], quantity: Quantity, note: str = "") -> str:
    """A row a series, a column an epoch; the more, the brighter. For many sites."""
    top = max((v for s in series for v in s.values if v is not None), default=0) or 1
    frame = _Frame(epochs, quantity, top)
    tall = (HEIGHT - TOP - BOTTOM) / max(1, len(series))
    wide = frame.band + 0.4  # a little over the next, or rounding leaves lines between the cells
    cells: list[list[str]] = [[] for _ in range(HEAT)]
    for row, one in enumerate(series):
        for i, value in enumerate(one.values):
            if value is not None:
                x = frame.x(i) - frame.band / 2
                box = f"M{x:.1f} {TOP + row * tall:.1f}h{wide:.2f}v{tall:.2f}h-{wide:.2f}z"
                cells[min(HEAT - 1, int(value / top * HEAT))].append(box)
    shapes = [f'<path class="heat h{level}" d="{"".join(boxes)}"/>' for level, boxes in enumerate(cells) if boxes]
    stride = _stride(len(series), 12)
    labels = [
        f'<text class="y" x="{LEFT - 6}" y="{TOP + (row + 0.5) * tall + 3.5:.1f}">{written(one.name)}</text>'
        for row, one in enumerate(series)
        if row % stride == 0
    ]
    scale = "".join(f'<i class="h{level}"></i>' for level in range(HEAT))
    legend = f'<span class="scale">0 {scale} {written(quantity.text(top))}</span>'
    return _figure(title, note, legend, frame.around("".join(shapes), series, "".join(labels)))


def by_site(title: str, epochs: Sequence[int], series: Sequence[Series], quantity: Quantity, note: str = "") -> str:
    """Lines while their colours can be told apart, else a heat map."""
    draw: Callable[..., str] = lines if len(series) <= MOST_LINES else heat
    return draw(title, epochs, series, quantity, note)


class _Frame:
    """Where an epoch and a value lie in the picture, and the axes around them."""

    def __init__(self, epochs: Sequence[int], quantity: Quantity, top: float) -> None:
        self.epochs, self.quantity = epochs, quantity
        self.marks = quantity.marks(top)
        self.top = self.marks[-1][0]
        self.band = (WIDTH - LEFT - RIGHT) / max(1, len(epochs))
        self.bar = min(48.0, max(self.band * 0.82, self.band - 3))

    def x(self, index: int) -> float:
        return LEFT + (index + 0.5) * self.band

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - value / self.top * (HEIGHT - TOP - BOTTOM)

    def around(self, shapes: str, series: Sequence[Series], side: str | None = None) -> str:
        """The picture: axes, the shapes, and what is shown when pointing at an epoch. `side` replaces the y axis."""
        if not self.epochs:
            shapes = f'<text class="none" x="{WIDTH / 2}" y="{HEIGHT / 2}">no epoch yet</text>'
        axes = (self._y_axis() if side is None else side) + self._x_axis()
        return (
            f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{axes}{shapes}'
            f'<g class="point">{"".join(self._pointed(i, series) for i in range(len(self.epochs)))}</g></svg>'
        )

    def _y_axis(self) -> str:
        out = []
        for value, text in self.marks:
            y = self.y(value)
            out.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
            out.append(f'<text class="y" x="{LEFT - 6}" y="{y + 3.5:.1f}">{written(text)}</text>')
        return "".join(out)

    def _x_axis(self) -> str:
        stride = _stride(len(self.epochs), 10)
        under = HEIGHT - BOTTOM + 14
        labels = [
            f'<text class="x" x="{self.x(i):.1f}" y="{under}">{number}</text>'
            for i, number in enumerate(self.epochs)
            if number % stride == 0 or len(self.epochs) <= stride
        ]
        middle = (LEFT + WIDTH - RIGHT) / 2
        return "".join(labels) + f'<text class="x name" x="{middle:.1f}" y="{HEIGHT - 5}">epoch</text>'

    def _pointed(self, index: int, series: Sequence[Series]) -> str:
        values = [(s.name, s.values[index]) for s in series]
        known = [(name, v) for name, v in values if v is not None]
        if len(known) > _LISTED:
            known = sorted(known, key=lambda pair: -pair[1])[:_LISTED]
        told = "\n".join(f"{name}: {self.quantity.text(value)}" for name, value in known)
        more = f"\n… and {len(values) - len(known)} more" if len(values) > len(known) else ""
        x = self.x(index) - self.band / 2
        return (
            f'<rect x="{x:.1f}" y="{TOP}" width="{self.band:.2f}" height="{HEIGHT - TOP - BOTTOM}">'
            f"<title>epoch {self.epochs[index]}\n{written(told + more)}</title></rect>"
        )


def _figure(title: str, note: str, legend: str, picture: str) -> str:
    picture = picture.replace('role="img"', f'role="img" aria-label="{written(title)}"', 1)
    small = f"<p>{written(note)}</p>" if note else ""
    caption = f'<h3>{written(title)}</h3>{small}<div class="legend">{legend}</div>'
    return f"<figure><figcaption>{caption}</figcaption>{picture}</figure>"


def _legend(series: Sequence[Series]) -> str:
    return "".join(f'<span><i class="fill {_colour(n)}"></i>{written(s.name)}</span>' for n, s in enumerate(series))


def _colour(number: int) -> str:
    return f"c{number % COLOURS}"


def _stride(count: int, most: int) -> int:
    """Every how many-th is labelled so that at most `most` are."""
    stride, steps = 1, (2, 2.5, 2)
    turn = 0
    while count / stride > most:
        stride, turn = int(stride * steps[turn % 3]), turn + 1
    return stride
