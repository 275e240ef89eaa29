from tests.synthetic_study import five_seeds, results

__all__ = ["five_seeds", "results"]
