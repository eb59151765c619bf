// Shapes, tensors, views, and the allocator under them.
#include "framework/tensor.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <utility>

#include "framework/allocator.h"
#include "framework/error.h"

namespace gau {
namespace {

TEST(Shape, ProductsAndText) {
  const Shape shape{8, 64, 768};
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape.size(), 8 * 64 * 768);
  EXPECT_EQ(shape.rows(), 8 * 64);
  EXPECT_EQ(shape.columns(), 768);
  EXPECT_EQ(shape.str(), "[8, 64, 768]");
  EXPECT_EQ(Shape().size(), 1);
  EXPECT_EQ(Shape().columns(), 1);
  EXPECT_EQ(Shape().str(), "[]");
  EXPECT_EQ((Shape{0, 5}.size()), 0);
  EXPECT_EQ((Shape{7}.rows()), 1);
  EXPECT_NE((Shape{2, 3}), (Shape{3, 2}));
  EXPECT_NE((Shape{2}), (Shape{2, 0}));
}

TEST(Shape, RefusesWhatCannotBe) {
  EXPECT_THROW((Shape{1, 1, 1, 1, 1}), Error);
  EXPECT_THROW((Shape{2, -1}), Error);
  constexpr std::int64_t huge = std::int64_t{1} << 31;
  EXPECT_THROW((Shape{huge, huge}), Error) << "2^62 elements have more bytes than can be addressed";
}

TEST(Tensor, HoldsValues) {
  Tensor tensor = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  EXPECT_EQ(tensor.dtype(), DType::kF32);
  EXPECT_EQ(tensor.bytes(), 24U);
  EXPECT_EQ(tensor.at(4), 5);
  tensor.data<float>()[4] = 9;
  EXPECT_EQ(std::as_const(tensor).span<float>()[4], 9);
  EXPECT_EQ(Tensor::from(std::vector<std::int32_t>{-7}, {1}).item(), -7);
  EXPECT_EQ(Tensor::from(std::vector<BFloat16>{{0x3FC0}}, {1}).item(), 1.5);
  for (const double value : Tensor::zeros({5}, DType::kF64).span<double>()) EXPECT_EQ(value, 0);
}

TEST(Tensor, RefusesMisuse) {
  Tensor tensor = Tensor::zeros({2, 3}, DType::kF32);
  EXPECT_THROW(tensor.data<double>(), Error);
  EXPECT_THROW(Tensor().data<float>(), Error);
  EXPECT_THROW(tensor.at(6), Error);
  EXPECT_THROW(tensor.at(-1), Error);
  EXPECT_THROW(tensor.item(), Error);
  EXPECT_THROW(tensor.reshaped({7}), Error);
  EXPECT_THROW(tensor.segment(4, {3}), Error);
  EXPECT_THROW(tensor.segment(-1, {3}), Error);
  EXPECT_THROW(Tensor::from(std::vector<float>{1, 2}, {3}), Error);
}

TEST(Tensor, ViewsShareStorage) {
  const Tensor whole = Tensor::from(std::vector<double>{0, 1, 2, 3, 4, 5}, {6});
  Tensor part = whole.segment(2, {2, 2});
  EXPECT_EQ(part.at(3), 5);
  part.data<double>()[0] = 7;
  EXPECT_EQ(whole.at(2), 7);
  EXPECT_FALSE(part.same_storage(whole));
  EXPECT_TRUE(whole.reshaped({2, 3}).same_storage(whole));
  Tensor copy = whole.clone();
  EXPECT_FALSE(copy.same_storage(whole));
  copy.data<double>()[0] = -1;
  EXPECT_EQ(whole.at(0), 0);
}

TEST(Tensor, ViewKeepsStorageAlive) {
  Tensor part;
  {
    const Tensor whole = Tensor::from(std::vector<float>(1000, 3.0F), {1000});
    part = whole.segment(500, {10});
  }
  const Tensor other = Tensor::zeros({1000}, DType::kF32);
  EXPECT_EQ(part.at(9), 3);
}

TEST(Tensor, EmptyIsDefined) {
  const Tensor tensor = Tensor::empty({0, 4}, DType::kF32);
  EXPECT_TRUE(tensor.defined());
  EXPECT_EQ(tensor.size(), 0);
  EXPECT_TRUE(tensor.span<float>().empty());
  EXPECT_FALSE(Tensor().defined());
}

TEST(Tensor, ConvertsBetweenTypes) {
  const Tensor tensor = Tensor::from(std::vector<float>{1.5F, -2}, {2});
  EXPECT_TRUE(tensor.to(DType::kF32).same_storage(tensor));
  const Tensor wide = tensor.to(DType::kF64);
  EXPECT_EQ(wide.dtype(), DType::kF64);
  EXPECT_EQ(wide.at(1), -2);
}

TEST(DType, ParsesNames) {
  EXPECT_EQ(parse_dtype("bf16"), DType::kBF16);
  EXPECT_THROW(parse_dtype("float"), Error);
}

TEST(Allocator, ReusesBlocks) {
  { const Tensor warm = Tensor::empty({1 << 18}, DType::kF32); }
  const std::size_t before = allocator::system_allocations();
  const void* first = nullptr;
  for (int i = 0; i < 10; ++i) {
    const Tensor tensor = Tensor::empty({1 << 18}, DType::kF32);
    if (i == 0) first = tensor.raw();
    EXPECT_EQ(tensor.raw(), first);
  }
  EXPECT_EQ(allocator::system_allocations(), before);
}

TEST(Allocator, CountsUseAndPeak) {
  allocator::reset_peak();
  const std::size_t before = allocator::in_use();
  constexpr std::size_t bytes = std::size_t{1} << 20;
  {
    const Tensor a = Tensor::empty({static_cast<std::int64_t>(bytes)}, DType::kI32);
    EXPECT_EQ(allocator::in_use(), before + 4 * bytes);
    { const Tensor b = Tensor::empty({static_cast<std::int64_t>(bytes)}, DType::kI32); }
    { const Tensor odd = Tensor::empty({77'777}, DType::kI32); }
  }
  EXPECT_EQ(allocator::in_use(), before);
  EXPECT_EQ(allocator::peak(), before + 8 * bytes);
  allocator::reset_peak();
  EXPECT_EQ(allocator::peak(), before);
}

TEST(Allocator, AlignsAndTrims) {
  for (const std::int64_t size : {1, 3, 1000, 100'000, 3'000'000}) {
    const Tensor tensor = Tensor::empty({size}, DType::kF32);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.raw()) % 64, 0U);
  }
  allocator::trim();
  const std::size_t before = allocator::system_allocations();
  const Tensor tensor = Tensor::empty({3'000'000}, DType::kF32);
  EXPECT_EQ(allocator::system_allocations(), before + 1) << "a trimmed cache has nothing to hand out";
}

TEST(Allocator, VaryingSizesDoNotPileUp) {
  // Distinct large sizes one after another: the cache may not keep them all.
  allocator::trim();
  const std::size_t before = allocator::system_allocations();
  for (std::int64_t size = 40'000'000; size < 80'000'000; size += 5'000'000) {
    const Tensor tensor = Tensor::empty({size}, DType::kF32);
  }
  const std::size_t asked = allocator::system_allocations() - before;
  for (std::int64_t size = 40'000'000; size < 80'000'000; size += 5'000'000) {
    const Tensor tensor = Tensor::empty({size}, DType::kF32);
  }
  EXPECT_GT(allocator::system_allocations() - before, asked) << "1.9 GB of freed blocks were kept for a need of 0.3 GB";
  allocator::trim();
}

TEST(Allocator, OutOfMemoryIsAnError) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "sanitizers end the program on such a request";
#endif
  try {
    Tensor::empty({std::int64_t{1} << 58}, DType::kF32);
    FAIL() << "2^60 bytes were handed out";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kIo);
    EXPECT_NE(std::string(error.what()).find("1152921504606846976"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace gau
