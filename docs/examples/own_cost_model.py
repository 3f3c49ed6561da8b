"""Let a cost model of one's own rank the candidates that a job measures."""

import autotune
from cost_models.features import names
from cost_models.ranker import analytic_scores


class BusyUnits:
    """Prefer candidates that keep the units of multiplication busy, among those that the analytic model likes."""

    asked = 0
    busy = names().index("fma_utilisation")

    def predict(self, features):
        """Return a score for each row of features, the higher the faster."""
        self.asked += len(features)
        return analytic_scores(features) + 0.1 * features[:, self.busy]


mine = BusyUnits()
report = autotune.tune("zoo:tiny_cnn", budget="1m", database="tuning.db", cost_model=mine)
print(report)
print(f"{mine.asked} candidates ranked")
