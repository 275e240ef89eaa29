from tests.study_results import five_seeds, results, study_of, three_sizes

__all__ = ["five_seeds", "results", "study_of", "three_sizes"]
