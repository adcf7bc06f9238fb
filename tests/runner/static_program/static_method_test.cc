#include "runner/static_program/static_method.h"

#include <gtest/gtest.h>

#include <functional>

#include "tests/runner/static_program/fake_program.h"

namespace ferry::runner::static_method_test {
namespace {

using packer::ManifestPort;

ManifestPort& port(std::vector<ManifestPort>& ports, const std::string& name) {
  const auto found = std::ranges::find(ports, name, &ManifestPort::name);
  EXPECT_NE(found, ports.end()) << name;
  return *found;
}

void remove(std::vector<ManifestPort>& ports, const std::string& name) {
  std::erase_if(ports, [&](const ManifestPort& p) { return p.name == name; });
}

Result<StaticPorts> read(const FakePorts& ports) {
  return StaticPorts::read(ports.inputs, ports.outputs, "method");
}

TEST(StaticPorts, HaveTheirRoleByName) {
  FakePorts ports = fake_ports({.window = 5, .kv = DType::kU8, .recurrent = true}, 4);
  std::ranges::reverse(ports.inputs);  // the order has no meaning
  std::ranges::reverse(ports.outputs);
  const auto read_ports = read(ports);
  ASSERT_TRUE(read_ports) << read_ports.error().message;
  const StaticPorts& p = *read_ports;
  EXPECT_EQ(p.ar, 4);
  EXPECT_EQ(p.cl, 24);
  EXPECT_EQ(p.vocab, 13);
  EXPECT_EQ(p.cache_dtype, DType::kU8);
  EXPECT_EQ(ports.inputs[p.tokens].name, "tokens");
  EXPECT_EQ(ports.inputs[*p.attention_mask].name, "attention_mask");
  EXPECT_EQ(ports.inputs[*p.window_mask].name, "window_mask");
  EXPECT_EQ(ports.inputs[*p.input_pos].name, "input_pos");
  EXPECT_EQ(ports.outputs[p.logits].name, "logits");
  ASSERT_EQ(p.caches.size(), 4u);
  const char* names[] = {"k_cache_0", "k_cache_2", "v_cache_0", "v_cache_2"};
  const char* outputs[] = {"new_k_0", "new_k_2", "new_v_0", "new_v_2"};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(ports.inputs[p.caches[i].input].name, names[i]);
    EXPECT_EQ(ports.outputs[p.caches[i].output].name, outputs[i]);
  }
  EXPECT_EQ(p.caches[3].tensor.heads, 1);
  EXPECT_EQ(p.caches[3].tensor.head_dim, 6);
  ASSERT_EQ(p.states.size(), 1u);
  EXPECT_EQ(p.states[0].bytes, 32u);
}

// Here the window mask has as many bytes as a cache, and input_pos is i32.
TEST(StaticPorts, OfTheSameSizeAsACacheAreNoCaches) {
  FakeOptions options{.window = 5, .kv = DType::kU8, .mask = DType::kF32};
  options.layers = {{0, 1, 96, true}};
  const auto ports = read(fake_ports(options, 20));
  ASSERT_TRUE(ports) << ports.error().message;
  EXPECT_EQ(ports->cache_dtype, DType::kU8);
  EXPECT_EQ(ports->caches.size(), 2u);
}

struct Change {
  std::function<void(FakePorts&)> change;
  std::string message;
};

const Change kChanges[] = {
    {[](FakePorts& p) { remove(p.inputs, "tokens"); }, "method has no input 'tokens'"},
    {[](FakePorts& p) { port(p.inputs, "tokens").dtype = DType::kI64; },
     "method has 'tokens' as i64[1, 4], expected i32[1, AR]"},
    {[](FakePorts& p) {
       port(p.inputs, "tokens").shape = {1, 0};
     },
     "expected i32[1, AR]"},
    {[](FakePorts& p) { remove(p.inputs, "attention_mask"); },
     "method has no input 'attention_mask'"},
    {[](FakePorts& p) {
       port(p.inputs, "attention_mask").shape = {1, 4, 24};
     },
     "method has 'attention_mask' as f32[1, 4, 24], expected [1, 1, 4, CL] with CL above 4"},
    {[](FakePorts& p) {
       port(p.inputs, "attention_mask").shape = {1, 1, 4, 4};
     },
     "expected [1, 1, 4, CL] with CL above 4"},
    {[](FakePorts& p) { port(p.inputs, "attention_mask").shape = {}; }, "CL above 4"},
    {[](FakePorts& p) { port(p.inputs, "input_pos").shape = {1}; },
     "method has 'input_pos' as i32[1], expected i32[1, 4]"},
    {[](FakePorts& p) { port(p.inputs, "input_pos").dtype = DType::kI64; },
     "method has 'input_pos' as i64[1, 4], expected i32[1, 4]"},
    {[](FakePorts& p) { remove(p.outputs, "logits"); }, "method has no output 'logits'"},
    {[](FakePorts& p) {
       port(p.outputs, "logits").shape = {1, 13};
     },
     "method has 'logits' as f32[1, 13], expected [1, 4, V]"},
    {[](FakePorts& p) { port(p.outputs, "logits").dtype = DType::kI32; },
     "method has 'logits' as i32[1, 4, 13]; supported for logits are f32, f16, bf16, u16 and u8"},
    {[](FakePorts& p) { port(p.outputs, "logits").dtype = DType::kU16; },
     "method has 'logits' as u16 without an encoding"},
    {[](FakePorts& p) {
       port(p.outputs, "logits").encoding = Encoding{1, 0};
     },
     "method has 'logits' as f32 with an encoding that is not one of that dtype"},
    {[](FakePorts& p) {
       for (const char* name : {"k_cache_0", "k_cache_2", "v_cache_0", "v_cache_2"}) {
         remove(p.inputs, name);
       }
     },
     "method has no KV cache: no input is named k_cache_0 or the like"},
    {[](FakePorts& p) { port(p.inputs, "v_cache_2").dtype = DType::kF16; },
     "method has caches of several dtypes: 'v_cache_2' of layer 2 is f16, 'k_cache_0' is f32"},
    {[](FakePorts& p) { port(p.inputs, "k_cache_2").dtype = DType::kI8; },
     "method has 'k_cache_2' as i8[1, 1, 6, 20]; supported for the cache of layer 2 are f32, f16, "
     "bf16, u16 and u8"},
    {[](FakePorts& p) { port(p.inputs, "k_cache_2").shape[3] = 21; },
     "method has 'k_cache_2' as f32[1, 1, 6, 21], expected [1, G, D, 20]"},
    {[](FakePorts& p) {
       port(p.inputs, "v_cache_0").shape = {1, 2, 4, 20};
     },
     "method has 'v_cache_0' as f32[1, 2, 4, 20], expected [1, G, 20, D]"},
    {[](FakePorts& p) {
       port(p.inputs, "v_cache_2").shape[3] = 5;
       port(p.outputs, "new_v_2").shape[3] = 5;
     },
     "method has k_cache_2 of 1 heads of 6 elements, and v_cache_2 of 1 of 5"},
    {[](FakePorts& p) { remove(p.inputs, "v_cache_0"); }, "layer 0 without values"},
    {[](FakePorts& p) { port(p.inputs, "v_cache_0").name = "v_cache_3"; },
     "method has an input 'v_cache_3' but no output new_v_3"},
    {[](FakePorts& p) { remove(p.outputs, "new_k_2"); },
     "method has an input 'k_cache_2' but no output new_k_2"},
    {[](FakePorts& p) { port(p.outputs, "new_k_2").dtype = DType::kU16; },
     "method has 'new_k_2' as u16[1, 1, 6, 4], expected f32[1, 1, 6, 4] for 'k_cache_2' of layer "
     "2"},
    {[](FakePorts& p) {
       port(p.outputs, "new_v_0").shape = {1, 2, 4, 5};
     },
     "expected f32[1, 2, 4, 4] for 'v_cache_0' of layer 0"},
    {[](FakePorts& p) { port(p.inputs, "k_cache_0").name = "k_cache_x"; },
     "method has an input 'k_cache_x' that no runner knows"},
    {[](FakePorts& p) { port(p.inputs, "k_cache_0").name = "k_cache_99999999999999999999"; },
     "that no runner knows"},
    {[](FakePorts& p) {
       p.inputs.push_back({"pixels", DType::kF32, {1}});
     },
     "method has an input 'pixels' that no runner knows"},
    {[](FakePorts& p) { remove(p.outputs, "new_recurrent_state_1"); },
     "method has an input 'recurrent_state_1' but no output new_recurrent_state_1"},
    {[](FakePorts& p) { port(p.outputs, "new_recurrent_state_1").shape = {8}; },
     "method has 'new_recurrent_state_1' as f32[8], expected f32[1, 8] as 'recurrent_state_1'"},
    {[](FakePorts& p) { port(p.inputs, "recurrent_state_1").dtype = DType::kF16; },
     "method has 'recurrent_state_1' as f16[1, 8], expected f32"},
};

TEST(StaticPorts, ThatDoNotFollowTheProtocolAreRefusedByName) {
  for (const Change& change : kChanges) {
    FakePorts ports = fake_ports({.recurrent = true}, 4);
    change.change(ports);
    const auto refused = read(ports);
    ASSERT_FALSE(refused) << change.message;
    EXPECT_NE(refused.error().message.find(change.message), std::string::npos)
        << refused.error().message << "\nexpected " << change.message;
  }
}

TEST(StaticPorts, OfCodesNeedTheirEncoding) {
  for (const char* name : {"k_cache_0", "v_cache_2"}) {
    FakePorts ports = fake_ports({.kv = DType::kU8}, 4);
    port(ports.inputs, name).encoding.reset();
    const auto refused = read(ports);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().message,
              std::string("method has '") + name + "' as u8 without an encoding");
  }
  FakePorts ports = fake_ports({.kv = DType::kU16}, 4);
  port(ports.outputs, "new_v_0").encoding.reset();
  EXPECT_EQ(read(ports).error().message, "method has 'new_v_0' as u16 without an encoding");
  port(ports.outputs, "new_v_0").encoding = Encoding{1, 65536};
  EXPECT_EQ(read(ports).error().message,
            "method has 'new_v_0' as u16 with an encoding that is not one of that dtype");
}

TEST(StaticPorts, OfBothMethodsMustFitTheSameCaches) {
  const auto message = [](const FakeOptions& other, const std::function<void(FakePorts&)>& change) {
    FakePorts ports = fake_ports(other, 4);
    change(ports);
    const Status same = check_same_state(
        read(fake_ports({.kv = DType::kU8, .recurrent = true}, 1)).value(), read(ports).value());
    return same ? std::string() : same.error().message;
  };
  const auto nothing = [](FakePorts&) {};
  const std::string differ = "kv_forward and prefill_forward differ in ";
  const FakeOptions same{.kv = DType::kU8, .recurrent = true};
  EXPECT_EQ(message(same, nothing), "");
  FakeOptions other = same;
  other.context = 25;
  EXPECT_EQ(message(other, nothing), differ + "the length of their context");
  other = same;
  other.vocab = 14;
  EXPECT_EQ(message(other, nothing), differ + "the width of their logits");
  other = same;
  other.kv = DType::kU16;
  EXPECT_EQ(message(other, nothing), differ + "the dtype of their caches");
  other = same;
  other.layers.pop_back();
  EXPECT_EQ(message(other, nothing), differ + "the number of their caches");
  other = same;
  other.layers[1].number = 3;
  EXPECT_EQ(message(other, nothing), differ + "k_cache_2 of layer 2");
  other = same;
  other.recurrent = false;
  EXPECT_EQ(message(other, nothing), differ + "the number of their states");
  // The caller can encode columns anew.
  EXPECT_EQ(message(same,
                    [](FakePorts& p) {
                      port(p.inputs, "v_cache_2").encoding = Encoding{2, 3};
                    }),
            "");
  EXPECT_EQ(message(same,
                    [](FakePorts& p) {
                      port(p.inputs, "recurrent_state_1").shape = {1, 9};
                      port(p.outputs, "new_recurrent_state_1").shape = {1, 9};
                    }),
            differ + "recurrent_state_1");
}

}  // namespace
}  // namespace ferry::runner::static_method_test
