// MaskedBatch: what one micro-step of training or evaluation reads.
#pragma once

#include <cstdint>

#include "framework/tensor.h"

namespace gau {

struct MaskedBatch {
  Tensor ids;       ///< i32 [B, L]
  Tensor key_mask;  ///< i32 [B, L], 1 = a token, 0 = padding; undefined when nothing is padded
  Tensor rows;      ///< i32 [M], flat positions b · L + i of the masked tokens, rising, padded with -1 to a multiple of 32 (at
                    ///< least 32)
  Tensor labels;    ///< i32 [M], the tokens to predict, -1 for padding
  std::int64_t masked = 0;           ///< masked tokens; may be 0
  std::int64_t tokens = 0;           ///< tokens that are not padding
  std::int64_t epoch = 0;            ///< of the first sequence
  std::uint64_t first_position = 0;  ///< of the first sequence, among all of training
};

}  // namespace gau
