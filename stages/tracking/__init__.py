"""MLflow as a view of the study's files. The only folder that imports mlflow."""
