// Trains a tiny model for two steps through the installed headers and libraries, on data that it makes itself.
#include <cmath>
#include <cstdio>
#include <string>

#include "data/corpus.h"
#include "data/synthetic.h"
#include "train/config.h"
#include "train/trainer.h"

int main() try {
  gau::SyntheticOptions made;
  made.output = "corpus.h5";
  made.documents = 16;
  made.lengths = {64};
  gau::make_synthetic(made);

  const gau::Config config = gau::parse_config(
      "[model]\nlayers = 2\nhidden = 16\nintermediate = 32\nkey_size = 8\n"
      "[data]\nlength = 16\nbatch = 8\n[optim]\nsteps = 2\n",
      "consumer");
  const gau::Corpus corpus(made.output);
  gau::Trainer trainer(config, corpus);
  trainer.model().initialize(1);
  for (std::int64_t step = 0; step < config.optim.steps; ++step) {
    const double loss = trainer.step(step).sums.mean_loss();
    std::printf("step %d loss %.4f\n", static_cast<int>(step + 1), loss);
    if (!std::isfinite(loss)) return 1;
  }
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
