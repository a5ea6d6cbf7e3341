static __device__ __forceinline__ float lanes_reduce_sum_f32(float x, int lane, int team) {
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
    return x;
}
extern "C" __global__ void __launch_bounds__(128)
fused(const float* __restrict__ in0, const float* __restrict__ in1, const float* __restrict__ in2, float* __restrict__ out0) {
    const int lane = threadIdx.x;
    const int team = threadIdx.y;
    const int block = (int)blockIdx.x;
    const int part = block;
    const int q = part * 4 + team;
    float k0[32];
    float k5[32];
    float a0 = 0.0f;
    for (int r = 0; r < 4; r++) {
        #pragma unroll 2
        for (int item = 0; item < 2; item++) {
            const int p = lane * 4 + item * 128;
            const float4 w0 = *(const float4*)(in0 + q * 1024 + r * 256 + p);
            const float v0_0 = w0.x;
            const float v0_1 = w0.y;
            const float v0_2 = w0.z;
            const float v0_3 = w0.w;
            a0 = v0_0 + a0;
            a0 = v0_1 + a0;
            a0 = v0_2 + a0;
            a0 = v0_3 + a0;
            k0[(r * 2 + item) * 4 + 0] = v0_0;
            k0[(r * 2 + item) * 4 + 1] = v0_1;
            k0[(r * 2 + item) * 4 + 2] = v0_2;
            k0[(r * 2 + item) * 4 + 3] = v0_3;
        }
    }
    a0 = lanes_reduce_sum_f32(a0, lane, team);
    const float v1 = a0;
    const float v4 = v1 * 0.0009765625f;
    float a1 = 0.0f;
    for (int r = 0; r < 4; r++) {
        #pragma unroll 2
        for (int item = 0; item < 2; item++) {
            const int p = lane * 4 + item * 128;
            const float v0_0 = k0[(r * 2 + item) * 4 + 0];
            const float v0_1 = k0[(r * 2 + item) * 4 + 1];
            const float v0_2 = k0[(r * 2 + item) * 4 + 2];
            const float v0_3 = k0[(r * 2 + item) * 4 + 3];
            const float v5_0 = v0_0 - v4;
            const float v5_1 = v0_1 - v4;
            const float v5_2 = v0_2 - v4;
            const float v5_3 = v0_3 - v4;
            const float v6_0 = v5_0 * v5_0;
            const float v6_1 = v5_1 * v5_1;
            const float v6_2 = v5_2 * v5_2;
            const float v6_3 = v5_3 * v5_3;
            a1 = v6_0 + a1;
            a1 = v6_1 + a1;
            a1 = v6_2 + a1;
            a1 = v6_3 + a1;
            k5[(r * 2 + item) * 4 + 0] = v5_0;
            k5[(r * 2 + item) * 4 + 1] = v5_1;
            k5[(r * 2 + item) * 4 + 2] = v5_2;
            k5[(r * 2 + item) * 4 + 3] = v5_3;
        }
    }
    a1 = lanes_reduce_sum_f32(a1, lane, team);
    const float v7 = a1;
    const float v8 = v7 * 0.0009765625f;
    const float v10 = v8 + 1e-05f;
    const float v11 = sqrtf(v10);
    const float v12 = 1 / v11;
    for (int r = 0; r < 4; r++) {
        const float v14 = in1[(q % 8) * 4 + r];
        const float v16 = in2[(q % 8) * 4 + r];
        #pragma unroll 2
        for (int item = 0; item < 2; item++) {
            const int p = lane * 4 + item * 128;
            const float v5_0 = k5[(r * 2 + item) * 4 + 0];
            const float v5_1 = k5[(r * 2 + item) * 4 + 1];
            const float v5_2 = k5[(r * 2 + item) * 4 + 2];
            const float v5_3 = k5[(r * 2 + item) * 4 + 3];
            const float v13_0 = v5_0 * v12;
            const float v13_1 = v5_1 * v12;
            const float v13_2 = v5_2 * v12;
            const float v13_3 = v5_3 * v12;
            const float v15_0 = v13_0 * v14;
            const float v15_1 = v13_1 * v14;
            const float v15_2 = v13_2 * v14;
            const float v15_3 = v13_3 * v14;
            const float v17_0 = v15_0 + v16;
            const float v17_1 = v15_1 + v16;
            const float v17_2 = v15_2 + v16;
            const float v17_3 = v15_3 + v16;
            const float v18_0 = 1.0f / (1.0f + (expf((0.0f - v17_0))));
            const float v18_1 = 1.0f / (1.0f + (expf((0.0f - v17_1))));
            const float v18_2 = 1.0f / (1.0f + (expf((0.0f - v17_2))));
            const float v18_3 = 1.0f / (1.0f + (expf((0.0f - v17_3))));
            const float v19_0 = v17_0 * v18_0;
            const float v19_1 = v17_1 * v18_1;
            const float v19_2 = v17_2 * v18_2;
            const float v19_3 = v17_3 * v18_3;
            *(float4*)(out0 + q * 1024 + r * 256 + p) = make_float4(v19_0, v19_1, v19_2, v19_3);
        }
    }
}
