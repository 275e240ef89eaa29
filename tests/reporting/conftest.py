from tests.study_results import five_seeds, results, three_sizes

__all__ = ["five_seeds", "results", "three_sizes"]
