// A model of two layers whose sizes are all different.
#pragma once

#include "layers/model_config.h"

namespace gau {

inline ModelConfig tiny_model() {
  ModelConfig config;
  config.layers = 2;
  config.hidden = 12;
  config.intermediate = 20;
  config.key_size = 6;
  config.vocab_size = 9;
  config.attention.train_length = 32;
  return config;
}

}  // namespace gau
