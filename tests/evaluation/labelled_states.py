"""States with labels, drawn with a planted separation of their classes."""

from dataclasses import dataclass

import numpy as np

from stages.core.seeding import stream


@dataclass(frozen=True)
class Case:
    """N states of width D. ``separation`` is the distance of the class means in standard
    deviations."""

    number: int
    width: int
    num_classes: int
    separation: float

    @property
    def name(self) -> str:
        return f"{self.number} x {self.width}, {self.num_classes} classes, {self.separation:g}"

    def draw(self, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
        """Returns the states [N, D] and the classes [N]. The directions differ in variance, as in a
        model."""
        rng = stream(seed, "labelled states", self.number, self.width, self.num_classes)
        classes = rng.permutation(np.arange(self.number) % self.num_classes)
        means = rng.normal(size=(self.num_classes, self.width)) / np.sqrt(self.width)
        noise = rng.normal(size=(self.number, self.width))
        scale = np.linspace(2, 0.2, self.width)
        return (noise + self.separation * means[classes]) * scale + 0.5, classes

    def number_of_each(self, seed: int = 1) -> np.ndarray:
        """Returns a target [N] that depends on the states."""
        states, _ = self.draw(seed)
        rng = stream(seed, "target", self.number, self.width)
        return states[:, 0] + rng.normal(size=self.number) / max(self.separation, 0.1)


CASES = [
    Case(*sizes, separation)
    for sizes in ((200, 16, 3), (300, 64, 10), (500, 32, 2))
    for separation in (0.0, 2.0, 6.0)
]
WIDE = [Case(60, 128, 4, separation) for separation in (0.0, 2.0, 6.0)]  # D exceeds N
