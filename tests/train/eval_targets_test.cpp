// What the protocols promise of targets and windows, checked by brute force over many sizes.
#include "train/eval_targets.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

namespace gau {
namespace {

constexpr std::int32_t kSpecial = 1;

std::vector<EvalDocument> documents_of(const std::vector<std::int64_t>& sizes, std::int64_t special_every = 0) {
  std::vector<EvalDocument> documents;
  for (std::size_t d = 0; d < sizes.size(); ++d) {
    EvalDocument document;
    document.index = static_cast<std::int64_t>(d) * 3 + 1;
    for (std::int64_t p = 0; p < sizes[d]; ++p) {
      document.tokens.push_back(special_every > 0 && p % special_every == 0 ? kSpecial : 7);
    }
    documents.push_back(std::move(document));
  }
  return documents;
}

using Place = std::pair<std::int64_t, std::int64_t>;  // document, position

/// Places scored by the windows; fails when one is scored twice or lies too near to an edge.
std::set<Place> scored(const TargetSet& targets, const std::vector<EvalDocument>& documents,
                       const std::vector<EvalWindow>& windows, std::int64_t length, std::int64_t edge) {
  std::set<Place> places;
  for (const EvalWindow& window : windows) {
    const DocumentTargets& entry = targets.documents[static_cast<std::size_t>(window.entry)];
    const auto tokens = static_cast<std::int64_t>(documents[static_cast<std::size_t>(entry.document)].tokens.size());
    EXPECT_GE(window.start, 0);
    EXPECT_LE(window.start + length, tokens);
    for (std::int64_t i = window.first; i < window.first + window.count; ++i) {
      const std::int64_t position = entry.positions[static_cast<std::size_t>(i)];
      EXPECT_GE(position - window.start, edge);
      EXPECT_GE(window.start + length - 1 - position, edge);
      EXPECT_TRUE(places.insert({entry.document, position}).second) << "scored twice";
    }
  }
  return places;
}

std::set<Place> all_places(const TargetSet& targets) {
  std::set<Place> places;
  for (const DocumentTargets& entry : targets.documents) {
    for (std::int64_t position : entry.positions) places.insert({entry.document, position});
  }
  return places;
}

TEST(SpacedTargets, AreScoredOnceAtEveryLengthAndFarFromEdges) {
  const std::vector<std::vector<std::int64_t>> length_sets{{2, 3, 5}, {8, 16, 64}, {10, 50, 100}, {7, 33, 129}, {64, 4096}};
  for (const auto& lengths : length_sets) {
    const std::int64_t longest = lengths.back();
    std::vector<std::int64_t> sizes;
    for (std::int64_t extra : {-1, 0, 1, 2, 3, 17, 50, 333, 1000}) sizes.push_back(longest + extra);
    const auto documents = documents_of(sizes);
    for (std::int64_t stride : {lengths.front(), lengths.front() + 1, 3 * lengths.front()}) {
      const TargetSet targets = spaced_targets(documents, {longest, stride, 0, 5, {}});
      EXPECT_EQ(targets.skipped, 1);
      EXPECT_EQ(targets.documents.size(), documents.size() - 1);
      for (std::int64_t length : lengths) {
        const auto windows = sliding_windows(targets, documents, length);
        EXPECT_EQ(scored(targets, documents, windows, length, length / 4), all_places(targets)) << length << " " << stride;
      }
      const auto crops = centred_windows(targets, documents, lengths.front());
      EXPECT_EQ(scored(targets, documents, crops, lengths.front(), 0), all_places(targets));
    }
  }
}

TEST(SpacedTargets, CropHoldsItsTargetAloneAndCentred) {
  const auto documents = documents_of({1000, 700});
  const TargetSet targets = spaced_targets(documents, {256, 64, 0, 1, {}});
  for (const EvalWindow& window : centred_windows(targets, documents, 64)) {
    const auto& positions = targets.documents[static_cast<std::size_t>(window.entry)].positions;
    const auto inside = std::count_if(positions.begin(), positions.end(),
                                      [&](std::int64_t p) { return p >= window.start && p < window.start + 64; });
    EXPECT_EQ(inside, 1);
    EXPECT_EQ(positions[static_cast<std::size_t>(window.first)] - window.start, 32);
  }
}

TEST(SpacedTargets, AreSpacedNeverSpecialAndKeyedByDocument) {
  const auto documents = documents_of({5000, 5000, 5000}, 3);
  const std::vector<std::int32_t> special{kSpecial};
  const TargetSet targets = spaced_targets(documents, {128, 31, 0, 9, special});
  std::set<std::int64_t> phases;
  for (const DocumentTargets& entry : targets.documents) {
    phases.insert(entry.positions.front() % 31);
    for (std::size_t i = 0; i < entry.positions.size(); ++i) {
      EXPECT_NE(entry.positions[i] % 3, 0);
      if (i > 0) {
        EXPECT_GE(entry.positions[i] - entry.positions[i - 1], 31);
      }
    }
  }
  EXPECT_GT(phases.size(), 1u);
  // Another document before it moves no target.
  const std::vector<EvalDocument> last(documents.end() - 1, documents.end());
  EXPECT_EQ(spaced_targets(last, {128, 31, 0, 9, special}).documents[0].positions, targets.documents[2].positions);
  EXPECT_NE(spaced_targets(last, {128, 31, 0, 10, special}).documents[0].positions, targets.documents[2].positions);
}

TEST(Thin, KeepsExactlySoManySpreadOverDocuments) {
  const auto documents = documents_of({400, 10000, 500, 300, 8000});
  const TargetSet all = spaced_targets(documents, {128, 16, 0, 2, {}});
  for (std::int64_t limit : {1, 3, 5, 37, 100, 500}) {
    TargetSet kept = all;
    thin(kept, limit);
    EXPECT_EQ(kept.total, limit);
    const auto places = all_places(kept);
    EXPECT_EQ(static_cast<std::int64_t>(places.size()), limit);
    const auto before = all_places(all);
    EXPECT_TRUE(std::includes(before.begin(), before.end(), places.begin(), places.end()));
    EXPECT_EQ(static_cast<std::int64_t>(kept.documents.size()), std::min<std::int64_t>(limit, 5));
    std::int64_t next = 0;
    for (const DocumentTargets& entry : kept.documents) {
      EXPECT_EQ(entry.first, next);
      next += static_cast<std::int64_t>(entry.positions.size());
    }
  }
  TargetSet kept = all;
  thin(kept, all.total + 1);
  EXPECT_EQ(kept.total, all.total);
}

TEST(LeadingTargets, AreEveryPositionOfTheFirstTokens) {
  const auto documents = documents_of({9, 10, 40}, 5);
  const std::vector<std::int32_t> special{kSpecial};
  const TargetSet targets = leading_targets(documents, 10, 0, special);
  EXPECT_EQ(targets.skipped, 1);
  ASSERT_EQ(targets.documents.size(), 2u);
  EXPECT_EQ(targets.documents[1].positions, (std::vector<std::int64_t>{1, 2, 3, 4, 6, 7, 8, 9}));
  EXPECT_EQ(leading_windows(targets).size(), 16u);
  EXPECT_EQ(leading_targets(documents, 10, 3, special).total, 6);
}

TEST(LabelledTargets, TakeDocumentsOfOneLengthAndTheirLabels) {
  auto documents = documents_of({6, 8});
  documents[0].labels = {-1, 4, -1, -1, 5, -1};
  documents[1].labels.assign(8, 2);
  const TargetSet targets = labelled_targets(documents, 6);
  EXPECT_EQ(targets.skipped, 1);
  ASSERT_EQ(targets.total, 2);
  EXPECT_EQ(targets.documents[0].positions, (std::vector<std::int64_t>{1, 4}));
  ASSERT_EQ(whole_windows(targets).size(), 1u);
  EXPECT_EQ(whole_windows(targets)[0].count, 2);
}

TEST(UnitMap, DocumentsWhenThereAreTwentyElseBlocks) {
  const auto many = documents_of(std::vector<std::int64_t>(20, 400));
  const UnitMap by_document = map_units(spaced_targets(many, {128, 32, 0, 0, {}}), 64);
  EXPECT_FALSE(by_document.blocks);
  EXPECT_EQ(by_document.count, 20);
  const auto few = documents_of(std::vector<std::int64_t>(19, 400));
  const TargetSet targets = spaced_targets(few, {128, 16, 0, 0, {}});
  const UnitMap by_block = map_units(targets, 64);
  EXPECT_TRUE(by_block.blocks);
  EXPECT_EQ(by_block.count, 19 * 6);  // positions 32 … 367 touch blocks 0 … 5 of 64 tokens
  EXPECT_EQ(static_cast<std::int64_t>(by_block.unit.size()), targets.total);
  EXPECT_EQ(by_block.unit.back(), by_block.count - 1);
}

}  // namespace
}  // namespace gau
