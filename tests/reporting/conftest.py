from tests.study_results import five_seeds, results, study_of

__all__ = ["five_seeds", "results", "study_of"]
