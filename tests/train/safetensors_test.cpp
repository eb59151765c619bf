// safetensors files: what is written comes back, and every way to be wrong is refused in one line.
#include "train/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>

#include "tests/errors.h"
#include "tests/train/scratch.h"
#include "train/float16.h"

namespace gau {
namespace {

using safetensors::Reader;
using safetensors::Source;
using safetensors::Type;
using testing::ElementsAre;
using testing::HasSubstr;

std::string with_size(std::uint64_t size, const std::string& rest) {
  std::string bytes(8, '\0');
  std::memcpy(bytes.data(), &size, 8);
  return bytes + rest;
}

std::string file_of(const std::string& header, std::size_t data) {
  return with_size(header.size(), header + std::string(data, '\1'));
}

class Safetensors : public testing::Test {
 protected:
  std::string write_bytes(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
    return path_;
  }
  void expect_refused(const std::string& bytes, const std::string& text) const {
    write_bytes(bytes);
    const Error error = error_of([&] { Reader file(path_); });
    EXPECT_EQ(error.code(), ExitCode::kData) << error.what();
    EXPECT_THAT(error.what(), testing::StartsWith(path_));
    EXPECT_THAT(error.what(), HasSubstr(text));
    EXPECT_LT(std::strlen(error.what()), 600u);
  }

  Scratch scratch_;
  std::string path_ = scratch_.file("x.safetensors");
};

Source source(const std::string& name, const std::vector<std::int64_t>& shape, const std::vector<float>& values) {
  return {name, shape, [values] { return std::span<const float>(values); }};
}

TEST_F(Safetensors, WhatIsWrittenComesBack) {
  const std::vector<float> values = {0, -0.0F, 1.5F, 1e-40F, -3e38F, 6};
  safetensors::write(path_, {source("b", {2, 3}, values), source("a", {}, {7}), source("none", {0, 5}, {})}, Type::kF32);
  const Reader file(path_);
  ASSERT_EQ(file.entries().size(), 3u);
  EXPECT_EQ(file.entries()[0].name, "b");
  EXPECT_EQ(file.entries()[0].dtype, "F32");
  EXPECT_THAT(file.entries()[0].shape, ElementsAre(2, 3));
  const std::vector<float> read = file.read(*file.find("b"));
  ASSERT_EQ(read.size(), values.size());
  EXPECT_EQ(std::memcmp(read.data(), values.data(), values.size() * sizeof(float)), 0);
  EXPECT_THAT(file.read(*file.find("a")), ElementsAre(7));
  EXPECT_TRUE(file.read(*file.find("none")).empty());
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_EQ(file.entries()[0].begin % 8, 0u);
}

TEST_F(Safetensors, NarrowTypesRoundAndSaySo) {
  const std::vector<float> values = {1, 1.0009765625F, 1.00048828125F, 1e-9F, 65504};
  const auto f16 = safetensors::write(path_, {source("a", {5}, values)}, Type::kF16);
  EXPECT_EQ(f16.elements, 5);
  EXPECT_EQ(f16.changed, 2);
  EXPECT_EQ(f16.zeroed, 1);
  EXPECT_THAT(Reader(path_).read(Reader(path_).entries()[0]), ElementsAre(1, 1.0009765625F, 1, 0, 65504));
  const auto bf16 = safetensors::write(path_, {source("a", {5}, values)}, Type::kBF16);
  EXPECT_EQ(bf16.changed, 4);
  EXPECT_EQ(bf16.zeroed, 0);
  EXPECT_EQ(Reader(path_).entries()[0].dtype, "BF16");
}

TEST_F(Safetensors, ValuesBeyondATypeAreRefused) {
  safetensors::write(path_, {source("a", {1}, {1})}, Type::kF32);
  const std::string before = read_bytes(path_);
  const Error half = error_of([&] { safetensors::write(path_, {source("big", {2}, {1, -65520})}, Type::kF16); });
  EXPECT_EQ(half.code(), ExitCode::kData);
  EXPECT_THAT(half.what(), testing::AllOf(HasSubstr("tensor big"), HasSubstr("element 1 = -65520"), HasSubstr("f16")));
  const Error brain = error_of([&] { safetensors::write(path_, {source("big", {1}, {3.4e38F})}, Type::kBF16); });
  EXPECT_THAT(brain.what(), HasSubstr("bf16"));
  EXPECT_EQ(read_bytes(path_), before);
}

TEST(Float16, EveryValueGoesThereAndBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = from_float16(half);
    if (std::isnan(value)) {
      EXPECT_EQ(half & 0x7C00, 0x7C00);
      EXPECT_TRUE(std::isnan(from_float16(to_float16(value))));
      continue;
    }
    ASSERT_EQ(to_float16(value), half) << bits;
    EXPECT_EQ(std::signbit(value), half >= 0x8000);
  }
}

// Between two neighbours the nearer one is taken, in the middle the even one.
TEST(Float16, RoundsToNearestEven) {
  for (std::uint16_t half = 0; half < 0x7BFF; ++half) {
    const float low = from_float16(half), high = from_float16(static_cast<std::uint16_t>(half + 1));
    const float middle = low + (high - low) / 2;
    const auto even = static_cast<std::uint16_t>(half % 2 == 0 ? half : half + 1);
    ASSERT_EQ(to_float16(middle), even) << half;
    ASSERT_EQ(to_float16(std::nextafter(middle, 0.0F)), half) << half;
    ASSERT_EQ(to_float16(std::nextafter(middle, 1e9F)), half + 1) << half;
  }
  EXPECT_EQ(to_float16(65519.996F), 0x7BFF);
  EXPECT_EQ(to_float16(65520), 0x7C00);
  EXPECT_EQ(to_float16(-std::numeric_limits<float>::infinity()), 0xFC00);
  EXPECT_EQ(to_float16(std::ldexp(1.0F, -25)), 0);
  EXPECT_EQ(to_float16(std::numeric_limits<float>::denorm_min()), 0);
}

constexpr const char* kGood = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";

TEST_F(Safetensors, ForeignFilesAreRead) {
  write_bytes(file_of(std::string(kGood) + "   \n ", 8));
  EXPECT_EQ(Reader(path_).entries().size(), 1u);
  write_bytes(file_of("{}", 0));
  EXPECT_TRUE(Reader(path_).entries().empty());
  // Data in another order than the header, an empty tensor in the middle, other types.
  write_bytes(
      file_of(R"({"b":{"dtype":"I64","shape":[1],"data_offsets":[3,11]},"e":{"dtype":"F32","shape":[0],"data_offsets":[3,3]},)"
              R"("a":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]},"__metadata__":{"k":"v"}})",
              11));
  const Reader file(path_);
  EXPECT_EQ(file.entries()[0].name, "a");
  EXPECT_EQ(file.metadata().at("k"), "v");
  EXPECT_THAT(error_of([&] { file.read(*file.find("b")); }).what(), HasSubstr("is I64"));
}

TEST_F(Safetensors, SizesThatDoNotFitAreRefused) {
  expect_refused("", "0 bytes: too short");
  expect_refused("abcd", "4 bytes: too short");
  expect_refused(with_size(0, ""), "header of 0 bytes");
  expect_refused(with_size(100, "{}"), "cut short");
  expect_refused(with_size(std::uint64_t{1} << 63, "{}"), "its header would have 9223372036854775808 bytes");
  expect_refused(with_size(~std::uint64_t{0}, "{}"), "its header would have");
  expect_refused(with_size(safetensors::kMostHeaderBytes + 1, "{}"), "its header would have");
  expect_refused(file_of(kGood, 7), "do not lie in the 7 bytes");
  expect_refused(file_of(kGood, 9), "1 bytes at its end belong to no tensor");
  // A file with holes may be as long as it says without a byte on the disk.
  write_bytes(with_size(safetensors::kMostHeaderBytes, ""));
  std::filesystem::resize_file(path_, 8 + safetensors::kMostHeaderBytes);
  EXPECT_THAT(error_of([&] { Reader file(path_); }).what(), HasSubstr("does not begin with"));
}

TEST_F(Safetensors, HeadersThatAreNoJsonAreRefused) {
  expect_refused(file_of(" {}", 0), "does not begin with '{'");
  expect_refused(file_of("{\"a\":", 0), "not valid JSON: at byte");
  expect_refused(file_of("{}{}", 0), "not valid JSON");
  expect_refused(file_of("{\"\xff\":1}", 0), "not valid JSON");
  expect_refused(file_of(std::string("{\"a\0\":1}", 8), 0), "not valid JSON");
  expect_refused(file_of("{\"a\":" + std::string(100000, '[') + "}", 0), "deeper than 4 levels");
  expect_refused(file_of("{\"a\":{\"dtype\":" + std::string(9, '[') + std::string(9, ']') + "}}", 0), "deeper than 4 levels");
  const std::string entry = R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  expect_refused(file_of("{" + entry + "," + entry + "}", 8), "the key \"a\" is there twice");
  expect_refused(file_of(R"({"a":{"dtype":"F32","dtype":"I32","shape":[2],"data_offsets":[0,8]}})", 8),
                 "\"dtype\" is there twice");
  expect_refused(file_of("{\"" + std::string(100000, 'n') + "\":1}", 0), "must be an object");
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return file_of("{\"a\":{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}", 8);
}

TEST_F(Safetensors, EntriesThatMakeNoTensorAreRefused) {
  expect_refused(entry("\"F33\"", "[2]", "[0,8]"), "unknown dtype \"F33\"");
  expect_refused(entry("32", "[2]", "[0,8]"), "dtype must be text");
  expect_refused(entry("\"F32\"", "2", "[0,8]"), "shape must be a list");
  expect_refused(entry("\"F32\"", "[1,1,1,1,1,1,1,1,2]", "[0,8]"), "at most 8");
  for (const char* shape : {"[-2]", "[2.0]", "[\"2\"]", "[1e0]", "[null]", "[true]", "[18446744073709551616]"})
    expect_refused(entry("\"F32\"", shape, "[0,8]"), "shape must hold whole numbers");
  // Products beyond 64 bits, the last of which would wrap to the 8 bytes that are there.
  for (const char* shape : {"[4294967296,4294967296]", "[9223372036854775808,2]", "[18446744073709551615]", "[3]",
                            "[4611686018427387905]", "[3,1537228672809129302]"})
    expect_refused(entry("\"F32\"", shape, "[0,8]"), "tensor \"a\"");
  expect_refused(entry("\"F32\"", "[0,18446744073709551615]", "[0,8]"), "is too large");
  expect_refused(entry("\"F32\"", "[0]", "[0,8]"), "hold 8 bytes, dtype and shape need 0");
  expect_refused(entry("\"F32\"", "[1]", "[0,8]"), "hold 8 bytes, dtype and shape need 4");
  for (const char* offsets : {"[8,0]", "[0,16]", "[0,18446744073709551615]", "[18446744073709551608,8]"})
    expect_refused(entry("\"F32\"", "[2]", offsets), "do not lie in the 8 bytes");
  for (const char* offsets : {"[0]", "[0,8,8]", "8", "{}"})
    expect_refused(entry("\"F32\"", "[2]", offsets), "must be two numbers");
  for (const char* offsets : {"[-8,0]", "[0,8.0]", "[0,\"8\"]"})
    expect_refused(entry("\"F32\"", "[2]", offsets), "data_offsets must hold whole numbers");
  expect_refused(file_of(R"({"a":{"dtype":"F32","shape":[2]}})", 8), "has no data_offsets");
  expect_refused(file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1}})", 8), "unknown key \"x\"");
  expect_refused(file_of(R"({"__metadata__":{"k":1}})", 0), "must be text");
  expect_refused(file_of(R"({"__metadata__":[]})", 0), "must be an object");
}

TEST_F(Safetensors, EveryByteBelongsToOneTensor) {
  const auto two = [](const std::string& a, const std::string& b) {
    return file_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + a +
                       R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + b + "}}",
                   8);
  };
  write_bytes(two("[4,8]", "[0,4]"));
  EXPECT_EQ(Reader(path_).entries()[0].name, "b");
  expect_refused(two("[0,4]", "[2,6]"), "overlap");
  expect_refused(two("[0,4]", "[0,4]"), "overlap");
  expect_refused(two("[1,5]", "[0,4]"), "overlap");
  expect_refused(
      file_of(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
              8),
      "a hole");
  expect_refused(file_of(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", 8), "a hole");
}

TEST_F(Safetensors, OnlyRegularFilesAreRead) {
  EXPECT_THAT(error_of([&] { Reader file(scratch_.path()); }).what(), HasSubstr("no regular file"));
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { Reader file(path_); }).what(), HasSubstr("no regular file"));
  const Error error = error_of([&] { Reader file(scratch_.file("absent")); });
  EXPECT_EQ(error.code(), ExitCode::kIo);
  EXPECT_THAT(error.what(), HasSubstr("No such file"));
}

}  // namespace
}  // namespace gau
