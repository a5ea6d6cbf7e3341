static __device__ __forceinline__ float lanes_reduce_sum_f32(float x, int lane, int team, float* shared) {
    float x16 = __shfl_xor_sync(0xffffffffu, x, 16);
    x = x + x16;
    float x8 = __shfl_xor_sync(0xffffffffu, x, 8);
    x = x + x8;
    float x4 = __shfl_xor_sync(0xffffffffu, x, 4);
    x = x + x4;
    float x2 = __shfl_xor_sync(0xffffffffu, x, 2);
    x = x + x2;
    float x1 = __shfl_xor_sync(0xffffffffu, x, 1);
    x = x + x1;
    if (lane % 32 == 0)
        shared[team * 2 + lane / 32] = x;
    __syncthreads();
    x = shared[team * 2];
    for (int i = 1; i < 2; i++) x = x + shared[team * 2 + i];
    __syncthreads();
    return x;
}
extern "C" __global__ void __launch_bounds__(128)
fused(const float* __restrict__ in0, const float* __restrict__ in1, const float* __restrict__ in2, const float* __restrict__ in3, float* __restrict__ out0, float* __restrict__ out1) {
    __shared__ float shared_f32[4];
    const int lane = threadIdx.x;
    const int team = threadIdx.y;
    const int block = (int)blockIdx.x;
    const int part = block;
    const int q = part * 2 + team;
    float k2[12];
    float k6[12];
    float a0 = 0.0f;
    #pragma unroll 3
    for (int item = 0; item < 3; item++) {
        const int p = lane * 4 + item * 256;
        const float4 w0 = *(const float4*)(in0 + q * 768 + p);
        const float v0_0 = w0.x;
        const float v0_1 = w0.y;
        const float v0_2 = w0.z;
        const float v0_3 = w0.w;
        const float4 w1 = *(const float4*)(in1 + q * 768 + p);
        const float v1_0 = w1.x;
        const float v1_1 = w1.y;
        const float v1_2 = w1.z;
        const float v1_3 = w1.w;
        const float v2_0 = v0_0 + v1_0;
        const float v2_1 = v0_1 + v1_1;
        const float v2_2 = v0_2 + v1_2;
        const float v2_3 = v0_3 + v1_3;
        a0 = v2_0 + a0;
        a0 = v2_1 + a0;
        a0 = v2_2 + a0;
        a0 = v2_3 + a0;
        k2[item * 4 + 0] = v2_0;
        k2[item * 4 + 1] = v2_1;
        k2[item * 4 + 2] = v2_2;
        k2[item * 4 + 3] = v2_3;
        *(float4*)(out0 + q * 768 + p) = make_float4(v2_0, v2_1, v2_2, v2_3);
    }
    a0 = lanes_reduce_sum_f32(a0, lane, team, shared_f32);
    const float v3 = a0;
    const float v5 = v3 / 768.0f;
    float a1 = 0.0f;
    #pragma unroll 3
    for (int item = 0; item < 3; item++) {
        const int p = lane * 4 + item * 256;
        const float v2_0 = k2[item * 4 + 0];
        const float v2_1 = k2[item * 4 + 1];
        const float v2_2 = k2[item * 4 + 2];
        const float v2_3 = k2[item * 4 + 3];
        const float v6_0 = v2_0 - v5;
        const float v6_1 = v2_1 - v5;
        const float v6_2 = v2_2 - v5;
        const float v6_3 = v2_3 - v5;
        const float v7_0 = v6_0 * v6_0;
        const float v7_1 = v6_1 * v6_1;
        const float v7_2 = v6_2 * v6_2;
        const float v7_3 = v6_3 * v6_3;
        a1 = v7_0 + a1;
        a1 = v7_1 + a1;
        a1 = v7_2 + a1;
        a1 = v7_3 + a1;
        k6[item * 4 + 0] = v6_0;
        k6[item * 4 + 1] = v6_1;
        k6[item * 4 + 2] = v6_2;
        k6[item * 4 + 3] = v6_3;
    }
    a1 = lanes_reduce_sum_f32(a1, lane, team, shared_f32);
    const float v8 = a1;
    const float v9 = v8 / 768.0f;
    const float v11 = v9 + 1e-05f;
    const float v12 = sqrtf(v11);
    const float v13 = 1 / v12;
    #pragma unroll 3
    for (int item = 0; item < 3; item++) {
        const int p = lane * 4 + item * 256;
        const float v6_0 = k6[item * 4 + 0];
        const float v6_1 = k6[item * 4 + 1];
        const float v6_2 = k6[item * 4 + 2];
        const float v6_3 = k6[item * 4 + 3];
        const float v14_0 = v6_0 * v13;
        const float v14_1 = v6_1 * v13;
        const float v14_2 = v6_2 * v13;
        const float v14_3 = v6_3 * v13;
        const float4 w15 = *(const float4*)(in2 + p);
        const float v15_0 = w15.x;
        const float v15_1 = w15.y;
        const float v15_2 = w15.z;
        const float v15_3 = w15.w;
        const float v16_0 = v14_0 * v15_0;
        const float v16_1 = v14_1 * v15_1;
        const float v16_2 = v14_2 * v15_2;
        const float v16_3 = v14_3 * v15_3;
        const float4 w17 = *(const float4*)(in3 + p);
        const float v17_0 = w17.x;
        const float v17_1 = w17.y;
        const float v17_2 = w17.z;
        const float v17_3 = w17.w;
        const float v18_0 = v16_0 + v17_0;
        const float v18_1 = v16_1 + v17_1;
        const float v18_2 = v16_2 + v17_2;
        const float v18_3 = v16_3 + v17_3;
        *(float4*)(out1 + q * 768 + p) = make_float4(v18_0, v18_1, v18_2, v18_3);
    }
}
