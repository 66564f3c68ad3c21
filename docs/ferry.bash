# bash completion of ferry; made by: ferry help --completion

_ferry()
{
	local word="${COMP_WORDS[COMP_CWORD]}" verb="${COMP_WORDS[1]}" keys=
	if [ "$COMP_CWORD" = 1 ]; then
		COMPREPLY=($(compgen -W "train eval generate plan export inspect verify tokenize data init topo bench report help" -- "$word"))
		return
	fi
	case "$verb" in
	train) keys="model dataset_info data eval_data output_dir resume_from_checkpoint overwrite_output_dir init_weights freeze trainable lora_rank lora_alpha lora_target_modules use_rslora lora_adapter machine data_format chat_template eos_token chat_template_kwargs max_length long_rows packing train_on_inputs alpaca_form train_on_last_turn data_mix shuffle data_memory data_cache max_samples field_text field_messages field_role field_content field_prompt field_completion field_instruction field_input field_output field_system field_history field_tools field_input_ids field_labels role_user role_assistant role_system role_tool role_tool_call data_split eval_data_split tokenizer eval_split per_device_train_batch_size per_device_eval_batch_size gradient_accumulation_steps num_train_epochs max_steps learning_rate lr_scheduler_type min_lr_rate warmup_steps warmup_ratio weight_decay adam_beta1 adam_beta2 adam_epsilon max_grad_norm optimizer_state skip_nonfinite nonfinite_limit compute_dtype gradient_dtype reduce_dtype export_dtype seed deterministic device threads cpu_offload activations vram_budget ram_budget pin_memory schedule sharding_strategy wrap_policy min_num_params backward_prefetch forward_prefetch prefetch_units load ranks_per_node watchdog_timeout check_replicas ranks save_steps save_total_limit save_only_model state_dict_type save_fallback_dir save_first_step max_shard_size logging_steps eval_steps sample_prompt sample_steps trace dump_gradients max_new_tokens temperature top_k top_p min_p repetition_penalty host_copy_gbps stream_delay_seed isa dry_run json help " ;;
	eval) keys="model dataset_info data init_weights lora_adapter data_format chat_template eos_token chat_template_kwargs max_length long_rows packing train_on_inputs alpaca_form train_on_last_turn data_memory data_cache max_samples field_text field_messages field_role field_content field_prompt field_completion field_instruction field_input field_output field_system field_history field_tools field_input_ids field_labels role_user role_assistant role_system role_tool role_tool_call data_split tokenizer eval_split per_device_eval_batch_size compute_dtype seed deterministic device threads cpu_offload vram_budget ram_budget pin_memory sharding_strategy wrap_policy min_num_params forward_prefetch prefetch_units load ranks_per_node watchdog_timeout ranks per_token host_copy_gbps stream_delay_seed isa json help " ;;
	generate) keys="model init_weights lora_adapter data_format chat_template chat_template_kwargs max_length alpaca_form tokenizer per_device_eval_batch_size compute_dtype seed deterministic device threads cpu_offload vram_budget ram_budget pin_memory sharding_strategy wrap_policy min_num_params forward_prefetch prefetch_units load ranks_per_node prompt prompt_ids prompt_file system max_new_tokens temperature do_sample top_k top_p min_p repetition_penalty stop cache_tokens drop_oldest chat host_copy_gbps stream_delay_seed isa json help " ;;
	plan) keys="model dataset_info data eval_data output_dir resume_from_checkpoint overwrite_output_dir init_weights freeze trainable lora_rank lora_alpha lora_target_modules use_rslora lora_adapter machine data_format chat_template eos_token chat_template_kwargs max_length long_rows packing train_on_inputs alpaca_form train_on_last_turn data_mix shuffle data_memory data_cache max_samples field_text field_messages field_role field_content field_prompt field_completion field_instruction field_input field_output field_system field_history field_tools field_input_ids field_labels role_user role_assistant role_system role_tool role_tool_call data_split eval_data_split tokenizer eval_split per_device_train_batch_size per_device_eval_batch_size gradient_accumulation_steps num_train_epochs max_steps learning_rate lr_scheduler_type min_lr_rate warmup_steps warmup_ratio weight_decay adam_beta1 adam_beta2 adam_epsilon max_grad_norm optimizer_state skip_nonfinite nonfinite_limit compute_dtype gradient_dtype reduce_dtype export_dtype seed deterministic device threads cpu_offload activations vram_budget ram_budget pin_memory schedule sharding_strategy wrap_policy min_num_params backward_prefetch forward_prefetch prefetch_units load ranks_per_node watchdog_timeout check_replicas ranks save_steps save_total_limit save_only_model state_dict_type save_fallback_dir save_first_step max_shard_size logging_steps eval_steps sample_prompt sample_steps trace trace_file dump_gradients max_new_tokens temperature top_k top_p min_p repetition_penalty host_copy_gbps stream_delay_seed isa dry_run estimate explain json help " ;;
	export) keys="model output_dir overwrite_output_dir checkpoint export_dtype max_shard_size json help " ;;
	inspect) keys="path json help " ;;
	verify) keys="path json help " ;;
	tokenize) keys="model path chat_template eos_token chat_template_kwargs tokenizer input_format decode add_special_tokens skip_special_tokens chat add_generation_prompt json help " ;;
	data) keys="model dataset_info data data_format chat_template eos_token chat_template_kwargs max_length long_rows packing train_on_inputs alpaca_form train_on_last_turn data_mix data_memory data_cache max_samples field_text field_messages field_role field_content field_prompt field_completion field_instruction field_input field_output field_system field_history field_tools field_input_ids field_labels role_user role_assistant role_system role_tool role_tool_call data_split tokenizer seed threads show_rows show_tokens json help " ;;
	init) keys="output_dir overwrite_output_dir config tokenizer export_dtype seed max_shard_size json help " ;;
	topo) keys="json help " ;;
	bench) keys="data machine machine_file name tokenizer gradient_accumulation_steps max_grad_norm device threads cpu_offload vram_budget ram_budget sharding_strategy ranks_per_node count models ways micro_batch_tokens host_copy_gbps isa json help " ;;
	report) keys="output_dirs html json help " ;;
	esac
	case "$word" in
	--*) COMPREPLY=($(compgen -P -- -W "$keys" -- "${word#--}")) ;;
	*=*) COMPREPLY=($(compgen -f -- "${word#*=}")) ;;
	*) COMPREPLY=($(compgen -S = -W "$keys" -- "$word") $(compgen -f -- "$word")) ;;
	esac
	case "${COMPREPLY[0]}" in *=) compopt -o nospace ;; esac
}

complete -o filenames -F _ferry ferry
