"""Energy and its CO2-equivalent: an estimate, of processors and GPU alone.

Of a GPU its own counter is read. Of processors it is the time that they worked for the process,
times the power of a core (Lannelongue et al. 2021, "Green Algorithms", eq. 1, without memory and
cooling). Intel's counters (RAPL) are not read: they count what all processes of a socket do, so
that trials side by side would each count the other, and root alone may read them.

Not by codecarbon (looked at: 3.3.2). Where it cannot read a counter it multiplies the load by a
power per thread likewise, 4 W if the processor is not in its table, as those of virtual machines
are not. Finding that out takes it over a second in each process, and it asks for nine more
packages.
"""

from dataclasses import dataclass

WATTS_PER_CORE = 12.0  # of any processor: Green Algorithms' data, v3.0, whose range is 4 to 24
GRAMS_PER_KWH = 473.0  # the world's average of 2024: Ember, Global Electricity Review 2025
JOULES_PER_KWH = 3.6e6
BASIS = (
    f"{WATTS_PER_CORE:.0f} W for each core while it works (Green Algorithms v3.0; processors differ"
    " by a factor of 6) plus the GPU's counter, without memory, cooling and manufacturing; "
    f"{GRAMS_PER_KWH:.0f} g CO2-equivalent per kWh, the world average of 2024 (Ember)"
)


@dataclass(frozen=True)
class Energy:
    """Estimated."""

    joules: float

    @classmethod
    def of(cls, processor_time_s: float, gpu_energy_j: float | None) -> "Energy | None":
        """None if the GPU's is not known."""
        if gpu_energy_j is None:
            return None
        return cls(processor_time_s * WATTS_PER_CORE + gpu_energy_j)

    @property
    def co2e_g(self) -> float:
        """Grams of CO2-equivalent, from the grid."""
        return self.joules / JOULES_PER_KWH * GRAMS_PER_KWH
