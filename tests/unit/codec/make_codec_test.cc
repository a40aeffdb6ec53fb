// Copyright the Starling authors. SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "starling/base/error.h"
#include "unit/codec/support.h"

namespace starling::codec {
namespace {

std::string complaint(const std::string& specification) {
  try {
    static_cast<void>(make_codec(specification, context_of(10)));
  } catch (const UserError& error) {
    return error.what();
  }
  return "none";
}

TEST(MakeCodec, WritesAllOptionsOut) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"fp32", "fp32"},
      {"fp16", "fp16"},
      {"bf16", "bf16"},
      {"int8", "int8"},
      {"1bit", "1bit"},
      {"threshold", "threshold:0.001"},
      {"threshold:2e-3", "threshold:0.002"},
      {"threshold:tau=0.5", "threshold:0.5"},
      {"topk", "topk:0.01"},
      {"topk:0.25", "topk:0.25"},
      {"topk:ratio=0.25", "topk:0.25"},
      {"randomk:1", "randomk:1"},
      {"dgc", "dgc:ratio=0.001,warmup=5,masking=1"},
      {"dgc:0.01,warmup=2.5", "dgc:ratio=0.01,warmup=2.5,masking=1"},
      {"dgc:masking=0", "dgc:ratio=0.001,warmup=5,masking=0"},
      {"powersgd", "powersgd:4"},
      {"powersgd:rank=2", "powersgd:2"},
  };
  for (const auto& [given, described] : cases) EXPECT_EQ(make_codec(given, context_of(10))->describe(), described);
}

TEST(MakeCodec, SaysWhatIsWrongAndWhatIsValid) {
  EXPECT_EQ(
      complaint("topl:0.1"),
      "there is no codec 'topl' (given as 'topl:0.1'): it is one of fp32, fp16, bf16, int8, 1bit, threshold, topk, randomk, dgc, powersgd. "
      "Did you mean 'topk'?");
  EXPECT_EQ(complaint("topk:0"), "the ratio of the codec 'topk:0' is '0', but it must be a number above 0 and at most 1");
  EXPECT_EQ(complaint("topk:1.5"), "the ratio of the codec 'topk:1.5' is '1.5', but it must be a number above 0 and at most 1");
  EXPECT_EQ(complaint("topk:x"), "the ratio of the codec 'topk:x' is 'x', but it must be a number above 0 and at most 1");
  EXPECT_EQ(complaint("topk:nan"), "the ratio of the codec 'topk:nan' is 'nan', but it must be a number above 0 and at most 1");
  EXPECT_EQ(complaint("topk:"),
            "the codec is 'topk:', but '' is no option: a codec is written NAME, NAME:VALUE or NAME:KEY=VALUE,KEY=VALUE");
  EXPECT_EQ(complaint("dgc:0.1,5"),
            "the codec is 'dgc:0.1,5', but '5' is no option: a codec is written NAME, NAME:VALUE or NAME:KEY=VALUE,KEY=VALUE");
  EXPECT_EQ(complaint("dgc:0.1,ratio=0.2"), "the codec is 'dgc:0.1,ratio=0.2', but 'ratio' is given twice");
  EXPECT_EQ(complaint("dgc:warmup=1,warmup=2"), "the codec is 'dgc:warmup=1,warmup=2', but 'warmup' is given twice");
  EXPECT_EQ(complaint("dgc:warmpu=1"),
            "the codec is 'dgc:warmpu=1', but dgc has no option 'warmpu': it has ratio, warmup, masking. Did you mean 'warmup'?");
  EXPECT_EQ(complaint("dgc:masking=2"), "the masking of the codec 'dgc:masking=2' is '2', but it must be a whole number from 0 to 1");
  EXPECT_EQ(complaint("powersgd:2.5"), "the rank of the codec 'powersgd:2.5' is '2.5', but it must be a whole number from 1 to 1024");
  EXPECT_EQ(complaint("powersgd:0"), "the rank of the codec 'powersgd:0' is '0', but it must be a whole number from 1 to 1024");
  EXPECT_EQ(complaint("fp16:3"), "the codec is 'fp16:3', but fp16 has no options");
  EXPECT_NE(complaint("threshold:-1").find("of at least 1e-30"), std::string::npos);
  EXPECT_NE(complaint("").find("there is no codec ''"), std::string::npos);
}

TEST(MakeCodec, EveryDescriptionIsComplete) {
  EXPECT_EQ(codec_descriptions().size(), 10U);
  for (const CodecDescription& description : codec_descriptions()) {
    EXPECT_EQ(description.form.rfind(description.name, 0), 0U);
    EXPECT_FALSE(description.summary.empty());
    EXPECT_EQ(make_codec(description.name, context_of(3))->exact(), description.name == "fp32");
    EXPECT_EQ(make_codec(description.name, context_of(3))->corrects_momentum(), description.name == "dgc");
  }
}

TEST(MakeCodec, AnUpdateOfAnotherLengthIsAMistakeOfTheProgram) {
  for (const CodecDescription& description : codec_descriptions()) {
    const auto codec = make_codec(description.name, context_of(3));
    Bytes bytes;
    Floats four(4);
    EXPECT_THROW(codec->encode(four, bytes), BrokenInvariant) << description.name;
    EXPECT_THROW(static_cast<void>(codec->decode(bytes, four)), BrokenInvariant) << description.name;
  }
}

}  // namespace
}  // namespace starling::codec
