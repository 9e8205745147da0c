#include "models/chat_templates/known.h"

#include <array>
#include <utility>

namespace troupe::chat {

namespace {

// Formats as the models' cards describe them.
constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kKnown = {{
    {"chatml",
     "{% for m in messages %}{{ '<|im_start|>' ~ m.role ~ '\\n' ~ m.content ~ '<|im_end|>\\n' }}"
     "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"},
    {"llama2",
     "{% set ns = namespace(system='') %}{% for m in messages %}{% if m.role == 'system' %}"
     "{% set ns.system = '<<SYS>>\\n' ~ m.content ~ '\\n<</SYS>>\\n\\n' %}"
     "{% elif m.role == 'user' %}"
     "{{ bos_token }}[INST] {{ ns.system }}{{ m.content | trim }} [/INST]{% set ns.system = '' %}"
     "{% else %} {{ m.content | trim }} {{ eos_token }}{% endif %}{% endfor %}"},
    {"llama3",
     "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>"
     "{{ '\\n\\n' ~ m.content | trim }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}"
     "<|start_header_id|>assistant<|end_header_id|>{{ '\\n\\n' }}{% endif %}"},
    {"gemma",
     "{{ bos_token }}{% set ns = namespace(system='') %}{% for m in messages %}"
     "{% if m.role == 'system' %}{% set ns.system = m.content ~ '\\n\\n' %}{% else %}"
     "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n"
     "{{ ns.system }}{{ m.content | trim }}<end_of_turn>{{ '\\n' }}{% set ns.system = '' %}"
     "{% endif %}{% endfor %}{% if add_generation_prompt %}"
     "<start_of_turn>model{{ '\\n' }}{% endif %}"},
    {"mistral",
     "{{ bos_token }}{% set ns = namespace(system='') %}{% for m in messages %}"
     "{% if m.role == 'system' %}{% set ns.system = m.content ~ '\\n\\n' %}"
     "{% elif m.role == 'user' %}[INST] {{ ns.system }}{{ m.content }} [/INST]"
     "{% set ns.system = '' %}{% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"},
    {"phi3",
     "{% for m in messages %}{{ '<|' ~ m.role ~ '|>\\n' ~ m.content ~ '<|end|>\\n' }}{% endfor %}"
     "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"},
    {"zephyr",
     "{% for m in messages %}{{ '<|' ~ m.role ~ '|>\\n' ~ m.content ~ eos_token ~ '\\n' }}"
     "{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"},
    {"deepseek",
     "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}<｜User｜>{{ m.content }}"
     "{% elif m.role == 'assistant' %}<｜Assistant｜>{{ m.content }}<｜end▁of▁sentence｜>"
     "{% else %}{{ m.content }}{% endif %}{% endfor %}"
     "{% if add_generation_prompt %}<｜Assistant｜>{% endif %}"},
}};

}  // namespace

std::optional<std::string_view> known_template(std::string_view name) {
  for (const auto& [known, text] : kKnown)
    if (known == name) return text;
  return std::nullopt;
}

std::vector<std::string_view> known_names() {
  std::vector<std::string_view> names;
  for (const auto& [known, text] : kKnown) names.push_back(known);
  return names;
}

}  // namespace troupe::chat
