"""Estimates of energy and its CO2-equivalent, for processors and GPU only.

A GPU's energy counter is read if only one process uses the GPU. For processors the estimate is
processor time times the power of a core (Lannelongue et al. 2021, "Green Algorithms", eq. 1,
without memory and cooling). Intel's counters (RAPL) are not used: they count all processes of a
socket, so that parallel trials would each count the others, and only root may read them.

codecarbon (3.3.2) is not used. Without a counter it, too, multiplies the load by a power per
thread: 4 W for a processor that is not in its table, as on virtual machines. It needs over a second
in each process to find this out, and nine more packages.
"""

from dataclasses import dataclass

WATTS_PER_CORE = 12.0  # for every processor; 4 to 24 in the data of Green Algorithms v3.0
GRAMS_PER_KWH = 473.0  # world average of 2024: Ember, Global Electricity Review 2025
JOULES_PER_KWH = 3.6e6
BASIS = (
    f"{WATTS_PER_CORE:.0f} W for each core while it works (Green Algorithms v3.0; processors differ"
    " by a factor of 6) plus the GPU's counter, without memory, cooling and manufacturing; "
    f"{GRAMS_PER_KWH:.0f} g CO2-equivalent per kWh, the world average of 2024 (Ember)"
)


@dataclass(frozen=True)
class Energy:
    """An estimated amount of energy."""

    joules: float

    @classmethod
    def of(cls, processor_time_s: float, gpu_energy_j: float | None) -> "Energy | None":
        """Returns the energy of processors and GPU, or None if the GPU's is unknown."""
        if gpu_energy_j is None:
            return None
        return cls(processor_time_s * WATTS_PER_CORE + gpu_energy_j)

    @property
    def co2e_g(self) -> float:
        """The CO2-equivalent of this energy in grams, if it comes from the grid."""
        return self.joules / JOULES_PER_KWH * GRAMS_PER_KWH
