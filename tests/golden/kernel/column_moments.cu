static __device__ __forceinline__ float teams_reduce_sum_f32(float x, int lane, int team, float* shared) {
    int i = team * 32 + lane;
    shared[i] = x;
    __syncthreads();
    for (int d = 16; d > 0; d /= 2) {
        if (team < d) shared[i] = shared[i] + shared[i + d * 32];
        __syncthreads();
    }
    x = shared[lane];
    __syncthreads();
    return x;
}
extern "C" __global__ void __launch_bounds__(1024)
fused(const float* __restrict__ in0, float* __restrict__ out0, float* __restrict__ out1) {
    __shared__ float shared_f32[1024];
    const int lane = threadIdx.x;
    const int team = threadIdx.y;
    const int block = (int)blockIdx.x;
    const int part = block;
    const int q = part / 3;
    const int p = part % 3 * 32 + lane;
    float a0 = 0.0f;
    float a1 = 0.0f;
    #pragma unroll 4
    for (int r = team; r < 200; r += 32) {
        const float v0 = in0[r * 96 + p];
        const float v2 = v0 * v0;
        a0 = v0 + a0;
        a1 = v2 + a1;
    }
    a0 = teams_reduce_sum_f32(a0, lane, team, shared_f32);
    a1 = teams_reduce_sum_f32(a1, lane, team, shared_f32);
    const float v1 = a0;
    const float v3 = a1;
    if (team == 0) {
        out0[p] = v1;
        out1[p] = v3;
    }
}
